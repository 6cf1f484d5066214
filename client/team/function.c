/* function.c: load task objects and find functions in them.
 *
 * Objects are identified by content: a file found twice, or under two names, is sent only once. The
 * client reads the dynamic symbol table, so that a misspelled name fails at once with the nearest
 * correct one. The worker makes the final check. */
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sha2.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_TASK_NO_ABI
#include <gradpool/task.h>

#include "client/team/team.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/spell.h"

enum { OBJECT_BYTES_MAX = 1 << 30, PATH_SAID_MAX = 512 };

struct team_object {
    struct team_object *next;
    uint32_t number; /* number of the object on the workers, from 1 */
    uint8_t sha256[SHA256_DIGEST_LENGTH];
    team_broadcast *broadcast;
};

/* Function of a team. If a worker rejects a function that was accepted here, later calls of it fail
 * with the worker's error. */
typedef struct function_entry {
    struct function_entry *next;
    gp_function function; /* handle given to the caller */
    team_broadcast *broadcast;
    const struct team_object *object;
} function_entry;

void functions_deinit(team_functions *functions)
{
    while (functions->entries != NULL) {
        function_entry *next = functions->entries->next;

        gp_free(functions->entries);
        functions->entries = next;
    }
    while (functions->objects != NULL) {
        struct team_object *next = functions->objects->next;

        gp_free(functions->objects);
        functions->objects = next;
    }
}

/* ---- reading an object ---- */

typedef struct image {
    const char *path;
    const uint8_t *bytes;
    size_t count;
} image;

/* Return a pointer to `count` bytes at `offset`; NULL: out of range. */
static const void *image_at(const image *file, uint64_t offset, uint64_t count)
{
    return offset <= file->count && count <= file->count - offset ? file->bytes + offset : NULL;
}

typedef Elf64_Ehdr elf_header;
typedef Elf64_Shdr elf_section;
typedef Elf64_Sym elf_symbol;
typedef Elf64_Phdr elf_segment;

#ifdef __x86_64__
enum { ELF_MACHINE = EM_X86_64 };
#else
enum { ELF_MACHINE = EM_AARCH64 };
#endif

static gp_status image_check(const image *file, gp_error *err)
{
    const elf_header *header = image_at(file, 0, sizeof(*header));

    if (header == NULL || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_type != ET_DYN ||
        header->e_ident[EI_CLASS] != ELFCLASS64)
        return gp_fail(err, GP_EINVAL,
                       "%s is not a task object; build it with gradpool_add_tasks() or cc -shared -fPIC",
                       file->path);

    /* The file must contain all loadable segments; otherwise the dynamic linker of a worker would
     * crash on it. */
    const elf_segment *segments =
        image_at(file, header->e_phoff, (uint64_t)header->e_phnum * sizeof(*segments));
    bool whole = segments != NULL && header->e_phentsize == sizeof(*segments) &&
                 header->e_phoff % _Alignof(elf_segment) == 0;

    for (uint32_t i = 0; whole && i < header->e_phnum; i++)
        whole = segments[i].p_type != PT_LOAD ||
                image_at(file, segments[i].p_offset, segments[i].p_filesz) != NULL;
    if (!whole)
        return gp_fail(err, GP_EINVAL, "%s is truncated at %zu bytes; rebuild it", file->path, file->count);
    if (header->e_machine != ELF_MACHINE)
        return gp_fail(err, GP_EINVAL, "%s was built for another architecture (ELF machine %u, expected %u)",
                       file->path, header->e_machine, (unsigned)ELF_MACHINE);
    return GP_OK;
}

typedef struct symbols {
    const elf_symbol *first;
    uint64_t count;
    const char *names;
    uint64_t names_bytes;
    const elf_section *sections;
    uint32_t section_count;
} symbols;

/* Find the dynamic symbols. Return false if the file has no section table; the worker then makes
 * the check. */
static bool symbols_find(const image *file, symbols *out)
{
    const elf_header *header = image_at(file, 0, sizeof(*header));
    const elf_section *sections;

    if (header->e_shentsize != sizeof(*sections) || header->e_shoff % _Alignof(elf_section) != 0)
        return false;
    sections = image_at(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof(*sections));
    for (uint32_t i = 0; sections != NULL && i < header->e_shnum; i++) {
        const elf_section *table = &sections[i], *names;

        if (table->sh_type != SHT_DYNSYM || table->sh_link >= header->e_shnum ||
            table->sh_offset % _Alignof(elf_symbol) != 0)
            continue;
        names = &sections[table->sh_link];
        *out = (symbols){ .first = image_at(file, table->sh_offset, table->sh_size),
                          .count = table->sh_size / sizeof(elf_symbol),
                          .names = image_at(file, names->sh_offset, names->sh_size),
                          .names_bytes = names->sh_size,
                          .sections = sections,
                          .section_count = header->e_shnum };
        return out->first != NULL && out->names != NULL && out->names_bytes > 0 &&
               out->names[out->names_bytes - 1] == '\0';
    }
    return false;
}

static const char *symbol_name(const symbols *all, const elf_symbol *symbol)
{
    return symbol->st_name < all->names_bytes ? all->names + symbol->st_name : "";
}

static gp_status abi_check(const image *file, const symbols *all, gp_error *err)
{
    for (uint64_t i = 0; i < all->count; i++) {
        const elf_symbol *symbol = &all->first[i];
        uint32_t abi = 0; /* the number that task.h put into the object; 0: none */

        if (strcmp(symbol_name(all, symbol), "gp_task_object_abi") != 0 || symbol->st_shndx == SHN_UNDEF)
            continue;
        if (symbol->st_shndx < all->section_count) {
            const elf_section *section = &all->sections[symbol->st_shndx];
            const void *at =
                symbol->st_value < section->sh_addr
                    ? NULL
                    : image_at(file, symbol->st_value - section->sh_addr + section->sh_offset, sizeof(abi));

            if (at != NULL)
                memcpy(&abi, at, sizeof(abi));
        }
        if (abi != GP_TASK_ABI)
            return gp_fail(err, GP_EVERSION,
                           "%s was built for task ABI %" PRIu32
                           ", expected %d; rebuild it with this gradpool's task.h",
                           file->path, abi, GP_TASK_ABI);
        return GP_OK;
    }
    return gp_fail(err, GP_EINVAL,
                   "%s is a shared object without tasks; include <gradpool/task.h> in its source",
                   file->path);
}

/* Check that the object defines that function. GP_ENOENT: it does not; the message suggests the
 * most similar name. */
static gp_status name_find(const image *file, const symbols *all, const char *name, gp_error *err)
{
    const char *nearest = NULL;
    unsigned distance = 0;

    for (uint64_t i = 0; i < all->count; i++) {
        const char *other = symbol_name(all, &all->first[i]);

        if ((all->first[i].st_info & 0xf) != STT_FUNC || all->first[i].st_shndx == SHN_UNDEF)
            continue;
        if (strcmp(other, name) == 0)
            return GP_OK;
        gp_spell_offer(name, other, &nearest, &distance);
    }
    if (nearest != NULL)
        return gp_fail(err, GP_ENOENT, "%s has no function '%s'; did you mean '%s'?", file->path, name,
                       nearest);
    return gp_fail(err, GP_ENOENT,
                   "%s has no function '%s'; define it with GP_TASK, in C++ with extern \"C\"?", file->path,
                   name);
}

/* ---- shipping ---- */

/* Find an object with the same content, or send this one to all workers. */
static gp_status object_add(gp_team *team, const image *file, gp_broadcast *shared, struct team_object **out,
                            gp_error *err)
{
    unsigned char payload[sizeof(gp_task_object) + PATH_SAID_MAX];
    gp_task_object head = { .bytes = shared->bytes };
    size_t length = strnlen(file->path, PATH_SAID_MAX - 1);
    struct team_object *object;
    SHA2_CTX sum;
    gp_status status;

    SHA256Init(&sum);
    SHA256Update(&sum, file->bytes, file->count);
    SHA256Final(head.sha256, &sum);
    for (object = team->functions.objects; object != NULL; object = object->next)
        if (memcmp(object->sha256, head.sha256, sizeof(head.sha256)) == 0) {
            *out = object;
            return GP_OK;
        }
    if (team->functions.object_count >= GP_TASK_OBJECTS_MAX)
        return gp_fail(err, GP_ELIMIT, "the team already has %d objects, the maximum", GP_TASK_OBJECTS_MAX);
    object = gp_calloc(1, sizeof(*object));
    if (object == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an object");
    memcpy(object->sha256, head.sha256, sizeof(object->sha256));
    memcpy(payload, &head, sizeof(head));
    memcpy(payload + sizeof(head), file->path, length);
    object->number = team->functions.object_count + 1;
    const team_call call = { .kind = GP_CALL_OBJECT,
                             .count = object->number,
                             .payload = payload,
                             .bytes = sizeof(head) + length,
                             .shared = shared };

    status = team_broadcast_run(&object->broadcast, team, &call, err);
    team->functions.object_count++; /* also counts a rejected object: numbers are not reused */
    if (status != GP_OK) {
        gp_free(object);
        return status;
    }
    object->next = team->functions.objects;
    team->functions.objects = object;
    *out = object;
    return GP_OK;
}

/* Copy the file into a sealed memory file, then check and send this copy: the file may change
 * meanwhile. */
static gp_status object_read(gp_team *team, int fd, const char *path, const char *name,
                             struct team_object **out, gp_error *err)
{
    struct stat info;
    gp_broadcast *shared;
    gp_status status;

    if (fstat(fd, &info) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot stat %s", path);
    if (!S_ISREG(info.st_mode))
        return gp_fail(err, GP_EINVAL, "%s is not a regular file", path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return gp_fail(
            err, GP_EPERM,
            "%s belongs to user %u; its code would run with your rights: copy it to a file of yours", path,
            (unsigned)info.st_uid);
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return gp_fail(err, GP_EPERM, "%s is writable by other users (mode %o); run: chmod go-w %s", path,
                       (unsigned)info.st_mode & 07777, path);
    if (info.st_size > OBJECT_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %lld bytes; an object has at most %d", path,
                       (long long)info.st_size, OBJECT_BYTES_MAX);
    if (info.st_size == 0)
        return gp_fail(err, GP_EINVAL, "%s is empty", path);
    status = shared_from_fd(&shared, fd, (size_t)info.st_size, path, err);
    if (status != GP_OK)
        return status;
    void *memory = mmap(NULL, shared->bytes, PROT_READ, MAP_SHARED, shared->fd, 0);

    if (memory == MAP_FAILED) {
        status = gp_fail_errno(err, GP_ENOMEM, "cannot map %s", path);
    } else {
        const image file = { path, memory, shared->bytes };

        symbols all;

        status = image_check(&file, err);
        if (status == GP_OK && symbols_find(&file, &all)) {
            status = abi_check(&file, &all, err);
            if (status == GP_OK)
                status = name_find(&file, &all, name, err);
        }
        if (status == GP_OK)
            status = object_add(team, &file, shared, out, err);
        munmap(memory, shared->bytes);
    }
    gp_broadcast_free(shared);
    return status;
}

static gp_status function_add(const gp_function **out, gp_team *team, const struct team_object *object,
                              const char *name, gp_error *err)
{
    const team_call call = { .kind = GP_CALL_FUNCTION,
                             .count = object->number,
                             .function = team->functions.count + 1,
                             .payload = name,
                             .bytes = strlen(name) };
    function_entry *entry;
    gp_status status;

    for (entry = team->functions.entries; entry != NULL; entry = entry->next)
        if (entry->object == object && strcmp(entry->function.name, name) == 0) {
            *out = &entry->function;
            return GP_OK;
        }
    if (team->functions.count >= GP_TASK_FUNCTIONS_MAX)
        return gp_fail(err, GP_ELIMIT, "the team already has %d functions, the maximum",
                       GP_TASK_FUNCTIONS_MAX);
    entry = gp_calloc(1, sizeof(*entry));
    if (entry == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a function");
    entry->object = object;
    entry->function.team = team;
    entry->function.number = ++team->functions.count;
    memcpy(entry->function.name, name, strlen(name));
    status = team_broadcast_run(&entry->broadcast, team, &call, err);
    if (status != GP_OK) {
        gp_free(entry);
        return status;
    }
    entry->next = team->functions.entries;
    team->functions.entries = entry;
    *out = &entry->function;
    return GP_OK;
}

gp_status function_check(const gp_function *function, gp_error *err)
{
    const function_entry *entry =
        (const function_entry *)(const void *)((const char *)function - offsetof(function_entry, function));
    gp_status status = team_broadcast_refused(entry->object->broadcast, err);

    return status == GP_OK ? team_broadcast_refused(entry->broadcast, err) : status;
}

bool function_find_origin(function_origin *out, const team_functions *functions, uint32_t number)
{
    for (const function_entry *entry = functions->entries; entry != NULL; entry = entry->next)
        if (entry->function.number == number) {
            const gp_broadcast *file = entry->object->broadcast->call.shared;

            *out = (function_origin){ .name = entry->function.name,
                                      .sha256 = entry->object->sha256,
                                      .fd = file->fd,
                                      .bytes = file->bytes };
            return true;
        }
    return false;
}

gp_status gp_function_find(const gp_function **out, gp_team *team, const char *name, gp_error *err)
{
    const char *colon = strrchr(name, ':');
    struct team_object *object = NULL;
    char path[4096];
    gp_status status;
    int fd;

    if (colon == NULL || colon == name || colon[1] == '\0')
        return gp_fail(err, GP_EINVAL, "'%s' does not name a function; write FILE.so:NAME", name);
    if (strlen(colon + 1) >= GP_TASK_NAME_MAX || (size_t)(colon - name) >= sizeof(path))
        return gp_fail(err, GP_ELIMIT,
                       "the function name is longer than %d bytes, or the file name longer than %zu",
                       GP_TASK_NAME_MAX - 1, sizeof(path) - 1);
    memcpy(path, name, (size_t)(colon - name));
    path[colon - name] = '\0';

    /* O_NONBLOCK: reject a pipe instead of waiting for it */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return gp_fail_errno(err, GP_ENOENT, "cannot open %s", path);
    team_enter(team);
    status = team_is_forked(team) ? pool_check_process(team->pool, err)
                                  : object_read(team, fd, path, colon + 1, &object, err);
    if (status == GP_OK)
        status = function_add(out, team, object, colon + 1, err);
    team_leave(team);
    close(fd);
    return status;
}
