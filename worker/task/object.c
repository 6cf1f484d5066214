#include "worker/task/object.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "common/base/text/spell.h"
#include "worker/task/blobs.h"

enum { PATH_SHOWN = 200, NAMES_SHOWN = 8, SEALS_NEEDED = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

typedef struct object {
    uint8_t sha256[32];
    void *handle;
    int fd; /* kept open: the dynamic linker identifies the object by a name with this number */
    char path[PATH_SHOWN];
} object;

typedef struct function {
    void *address; /* NULL: the number is unused */
    int64_t last_ns;
} function;

struct gp_objects {
    object loaded[GP_TASK_OBJECTS_MAX];
    uint32_t loaded_count;
    /* indexed by the client's numbers, from 1 */
    const object *numbered[GP_TASK_OBJECTS_MAX + 1];
    function functions[GP_TASK_FUNCTIONS_MAX + 1];
};

gp_status gp_objects_new(gp_objects **out, gp_error *err)
{
    gp_objects *objects = gp_calloc(1, sizeof(*objects));

    if (objects == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the code of tasks");
    *out = objects;
    return GP_OK;
}

void gp_objects_free(gp_objects *objects)
{
    gp_free(objects);
}

void gp_objects_forget(gp_objects *objects)
{
    memset(objects->numbered, 0, sizeof(objects->numbered));
    memset(objects->functions, 0, sizeof(objects->functions));
}

/* ---- the file ---- */

static gp_status file_map(int fd, const char *path, uint64_t bytes, const uint8_t **out, gp_error *err)
{
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);

    if (map == MAP_FAILED)
        return gp_fail_errno(err, GP_ENOMEM, "cannot map %s", path);
    *out = map;
    return GP_OK;
}

static gp_status file_digest(int fd, const char *path, uint64_t bytes, const uint8_t sha256[32],
                             gp_error *err)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    const uint8_t *content;
    SHA2_CTX hash;
    gp_status status = file_map(fd, path, bytes, &content, err);

    if (status != GP_OK)
        return status;
    SHA256Init(&hash);
    SHA256Update(&hash, content, bytes);
    SHA256Final(digest, &hash);
    munmap((void *)(uintptr_t)content, bytes);
    if (memcmp(digest, sha256, sizeof(digest)) != 0)
        return gp_fail(err, GP_ECORRUPT, "%s was corrupted in transit: its SHA-256 differs", path);
    return GP_OK;
}

/* ---- loading ---- */

/* Look up a symbol that the object itself defines. NULL: not found, or defined in a library that
 * it uses. */
static void *custom_symbol(void *handle, const char *name, unsigned char *type)
{
    void *address = dlsym(handle, name);
    struct link_map *map = NULL, *home = NULL;
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;

    if (address == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 ||
        dladdr1(address, &info, (void **)&home, RTLD_DL_LINKMAP) == 0 || home != map)
        return NULL;
    *type = STT_NOTYPE;
    if (dladdr1(address, &info, (void **)(uintptr_t)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL)
        *type = ELF64_ST_TYPE(symbol->st_info);
    return address;
}

static gp_status object_open(object *fresh, int *fd, const char *path, gp_error *err)
{
    char name[32];
    unsigned char type;
    gp_status status;

    snprintf(name, sizeof(name), "/proc/self/fd/%d", *fd);
    fresh->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (fresh->handle == NULL) { /* the dynamic linker's message, without the internal file name */
        const char *said = dlerror(), *after;

        if (said == NULL)
            said = "unknown reason";
        after = strncmp(said, "/proc/", 6) == 0 ? strstr(said, ": ") : NULL;
        if (after != NULL)
            said = after + 2;
        return gp_fail(err, GP_EINVAL, "cannot load %s: %s%s", path, said,
                       strstr(said, "undefined symbol") != NULL ? "; link it with the library that defines it"
                                                                : "");
    }
    const uint32_t *abi = custom_symbol(fresh->handle, "gp_task_object_abi", &type);

    if (abi != NULL && *abi == GP_TASK_ABI)
        return GP_OK;
    if (abi == NULL)
        status = gp_fail(err, GP_EINVAL, "%s is not a task object: include <gradpool/task.h> and rebuild it",
                         path);
    else
        status = gp_fail(err, GP_EVERSION,
                         "%s was built for task ABI %u, this worker has ABI %d; rebuild it with "
                         "<gradpool/task.h> of this version",
                         path, *abi, GP_TASK_ABI);
    dlclose(fresh->handle); /* only the constructors have run */
    if (dlopen(name, RTLD_NOW | RTLD_NOLOAD) != NULL)
        *fd = -1; /* the object cannot be unloaded, so the file name must not be reused */
    return status;
}

/* Load an object, or find the same content among the loaded ones. *fd is set to -1 if the
 * descriptor must stay open. */
static gp_status object_add(gp_objects *objects, const gp_task_object *about, int *fd, const char *path,
                            const object **out, gp_error *err)
{
    object *fresh = &objects->loaded[objects->loaded_count];
    const int seals = fcntl(*fd, F_GET_SEALS);
    struct stat info;

    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED)
        return gp_fail(err, GP_EPERM, "the file of %s is not sealed against writing", path);
    if (fstat(*fd, &info) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    if (about->bytes == 0 || about->bytes > GP_OBJECT_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %llu bytes; a task object must have 1 to %d", path,
                       (unsigned long long)about->bytes, GP_OBJECT_BYTES_MAX);
    if ((uint64_t)info.st_size != about->bytes)
        return gp_fail(err, GP_ECORRUPT, "%s has %lld bytes, must have %llu", path, (long long)info.st_size,
                       (unsigned long long)about->bytes);
    gp_status status = file_digest(*fd, path, about->bytes, about->sha256, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < objects->loaded_count; i++) {
        *out = &objects->loaded[i];
        if (memcmp((*out)->sha256, about->sha256, sizeof(about->sha256)) == 0)
            return GP_OK;
    }
    if (objects->loaded_count == GP_TASK_OBJECTS_MAX)
        return gp_fail(err, GP_ELIMIT, "this worker has reached its limit of %d task objects",
                       GP_TASK_OBJECTS_MAX);
    status = object_open(fresh, fd, path, err);
    if (status != GP_OK)
        return status;
    memcpy(fresh->sha256, about->sha256, sizeof(fresh->sha256));
    fresh->fd = *fd;
    *fd = -1;
    snprintf(fresh->path, sizeof(fresh->path), "%s", path);
    objects->loaded_count++;
    *out = fresh;
    return GP_OK;
}

gp_status gp_object_load(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    gp_objects *objects = tasks->objects;
    const object *loaded;
    char path[PATH_SHOWN];
    gp_task_object about;
    gp_status status;
    int64_t began_ns = gp_now_ns();
    int fd = -1;

    (void)out;
    if (call->inlined_bytes < sizeof(about) || call->blob == 0 || call->count == 0 ||
        call->count > GP_TASK_OBJECTS_MAX || objects->numbered[call->count] != NULL)
        return gp_fail(err, GP_EPROTO, "object %u: invalid description, missing file or number in use",
                       call->count);
    memcpy(&about, call->inlined, sizeof(about));
    snprintf(path, sizeof(path), "%.*s", (int)(call->inlined_bytes - sizeof(about)),
             (const char *)call->inlined + sizeof(about));
    status = gp_blobs_file(tasks->server->blobs, call->blob, &fd, err);
    if (status != GP_OK)
        return status;
    atomic_store(&tasks->server->used, 1); /* set it before the constructors run */
    status = object_add(objects, &about, &fd, path, &loaded, err);
    if (fd >= 0)
        close(fd);
    if (status != GP_OK)
        return status;
    objects->numbered[call->count] = loaded;
    gp_log(GP_LOG_DEBUG, "object-loaded", "loaded %s (%llu bytes) in %.2f ms", path,
           (unsigned long long)about.bytes, (double)(gp_now_ns() - began_ns) * 1e-6);
    return GP_OK;
}

/* ---- functions ---- */

/* Functions that an object defines, for the error message about a missing function. */
typedef struct offer {
    const char *wanted, *nearest;
    unsigned distance;
    uint32_t count;
    char names[GP_TASK_NAME_MAX + 1]; /* first few names */
    char copy[GP_TASK_NAME_MAX + 1];  /* copy of the nearest name */
} offer;

static void offer_add(offer *o, const char *name)
{
    size_t used = strlen(o->names);
    const char *before = o->nearest;

    if (strlen(name) > GP_TASK_NAME_MAX || name[0] == '_')
        return;
    gp_spell_offer(o->wanted, name, &o->nearest, &o->distance);
    if (o->nearest != before && o->nearest != NULL) {
        snprintf(o->copy, sizeof(o->copy), "%s", name);
        o->nearest = o->copy;
    }
    if (o->count++ < NAMES_SHOWN && used + strlen(name) + 3 < sizeof(o->names))
        snprintf(o->names + used, sizeof(o->names) - used, "%s%s", used == 0 ? "" : ", ", name);
}

/* Collect the functions that an ELF file defines in the dynamic symbol table. The file contents are
 * not trusted. */
static void offer_read(offer *o, const uint8_t *file, size_t bytes)
{
    Elf64_Ehdr head;

    if (bytes < sizeof(head))
        return;
    memcpy(&head, file, sizeof(head));
    for (uint32_t i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr symbols, names;
        uint64_t at = head.e_shoff + (uint64_t)i * sizeof(symbols), names_at;

        if (head.e_shoff > bytes || at + sizeof(symbols) > bytes)
            return;
        memcpy(&symbols, file + at, sizeof(symbols));
        names_at = head.e_shoff + (uint64_t)symbols.sh_link * sizeof(names);
        if (symbols.sh_type != SHT_DYNSYM || names_at + sizeof(names) > bytes)
            continue;
        memcpy(&names, file + names_at, sizeof(names));
        if (symbols.sh_offset > bytes || symbols.sh_size > bytes - symbols.sh_offset ||
            names.sh_offset > bytes || names.sh_size > bytes - names.sh_offset)
            return;
        for (uint64_t s = 0; s + sizeof(Elf64_Sym) <= symbols.sh_size; s += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol;
            const char *name;

            memcpy(&symbol, file + symbols.sh_offset + s, sizeof(symbol));
            name = (const char *)file + names.sh_offset + symbol.st_name;
            if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
                symbol.st_name < names.sh_size && memchr(name, 0, names.sh_size - symbol.st_name) != NULL)
                offer_add(o, name);
        }
    }
}

static gp_status function_missing(const object *in, const char *name, gp_error *err)
{
    offer o = { .wanted = name };
    const uint8_t *file;
    struct stat info;

    if (fstat(in->fd, &info) == 0 && info.st_size > 0 &&
        file_map(in->fd, in->path, (uint64_t)info.st_size, &file, err) == GP_OK) {
        offer_read(&o, file, (size_t)info.st_size);
        munmap((void *)(uintptr_t)file, (size_t)info.st_size);
    }
    if (o.count == 0)
        return gp_fail(err, GP_ENOENT,
                       "%s has no function \"%s\" and no other; mark its functions with GP_TASK", in->path,
                       name);
    if (o.nearest != NULL)
        return gp_fail(err, GP_ENOENT, "%s has no function \"%s\"; did you mean \"%s\"?", in->path, name,
                       o.copy);
    return gp_fail(err, GP_ENOENT, "%s has no function \"%s\"; its functions are %s%s", in->path, name,
                   o.names, o.count > NAMES_SHOWN ? ", ..." : "");
}

gp_status gp_object_function(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    gp_objects *objects = tasks->objects;
    const object *in = call->count <= GP_TASK_OBJECTS_MAX ? objects->numbered[call->count] : NULL;
    char name[GP_TASK_NAME_MAX + 1];
    unsigned char type;
    void *address;

    (void)out;
    if (in == NULL)
        return gp_fail(err, GP_ENOENT, "this worker has no object %u", call->count);
    if (call->function == 0 || call->function > GP_TASK_FUNCTIONS_MAX ||
        objects->functions[call->function].address != NULL)
        return gp_fail(err, GP_EPROTO, "function number %u is in use, or not between 1 and %d",
                       call->function, GP_TASK_FUNCTIONS_MAX);
    if (gp_tasks_name(call, name, NULL, err) != GP_OK)
        return err->code;
    address = custom_symbol(in->handle, name, &type);
    if (address == NULL)
        return function_missing(in, name, err);
    if (type == STT_OBJECT || type == STT_TLS)
        return gp_fail(err, GP_ENOENT, "\"%s\" in %s is data, not a function", name, in->path);
    objects->functions[call->function] = (function){ .address = address, .last_ns = INT64_MAX };
    return GP_OK;
}

void *gp_objects_find(const gp_objects *objects, uint32_t number, gp_error *err)
{
    void *address = number <= GP_TASK_FUNCTIONS_MAX ? objects->functions[number].address : NULL;

    if (address == NULL)
        gp_fail(err, GP_ENOENT, "this worker has no function %u", number);
    return address;
}

int64_t gp_objects_last_ns(const gp_objects *objects, uint32_t number)
{
    return number <= GP_TASK_FUNCTIONS_MAX ? objects->functions[number].last_ns : INT64_MAX;
}

void gp_objects_took(gp_objects *objects, uint32_t number, int64_t ns)
{
    if (number <= GP_TASK_FUNCTIONS_MAX)
        objects->functions[number].last_ns = ns;
}
