/* Shared arrays: create, open and verify the sealed memory files. */
#include "common/data/source/shared_arrays.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/system/packet.h"
#include "common/base/system/process.h"
#include "common/base/system/seal.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

enum { ALIGNMENT = 64, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/* File header. The class names follow, each with a NUL, then the samples, then the targets. */
typedef struct arrays_header {
    char magic[8];
    uint64_t token;
    uint32_t count, channels, height, width, dtype, class_count;
    uint32_t target_dtype, target_rank;
    int64_t target_dim[4];
    uint64_t names_bytes;
} arrays_header;

static const char arrays_magic[8] = "gplent1";

/* Offsets of the parts, and total size, in bytes. */
typedef struct arrays_places {
    uint64_t names, samples, targets, bytes;
} arrays_places;

bool gp_shared_arrays_is(const char *source)
{
    return strncmp(source, "arrays:", 7) == 0;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Compute the layout. The numbers are within their limits, so nothing overflows. */
static arrays_places places_of(const gp_store_info *info, uint64_t names_bytes)
{
    arrays_places at = { .names = aligned(sizeof(arrays_header)) };

    at.samples = at.names + aligned(names_bytes);
    at.targets = at.samples + aligned((uint64_t)info->count * info->channels * info->height * info->width *
                                      gp_dtype_bytes(info->dtype));
    at.bytes = at.targets + aligned((uint64_t)info->count * gp_targets_bytes(info->targets, 1));
    return at;
}

/* Check a description against the limits and fill in sizes. GP_ELIMIT: a size is out of range. */
static gp_status info_check(gp_store_info *info, gp_error *err)
{
    const gp_target *target = &info->targets[0];

    info->target_count = 1;
    if ((info->dtype != GP_U8 && info->dtype != GP_F32) || target->shape.rank > 3 ||
        (target->dtype != GP_I32 && target->dtype != GP_F32))
        return gp_fail(err, GP_ELIMIT,
                       "unsupported arrays with targets of rank %u: samples must be uint8 or float32, and "
                       "targets int32 or float32 with a rank of at most 3",
                       target->shape.rank);
    gp_status status = gp_store_info_check(info, err);

    if (status == GP_OK && (info->sample_bytes > GP_STORE_BYTES_MAX / info->count ||
                            places_of(info, 0).bytes > GP_STORE_BYTES_MAX))
        return gp_fail(err, GP_ELIMIT, "the arrays have %llu bytes, at most %llu are supported",
                       (unsigned long long)places_of(info, 0).bytes, (unsigned long long)GP_STORE_BYTES_MAX);
    return status;
}

/* ---- creating ---- */

static gp_status part_write(int fd, uint64_t at, const void *data, uint64_t bytes, gp_error *err)
{
    return lseek(fd, (off_t)at, SEEK_SET) >= 0 && gp_write_all(fd, data, bytes)
               ? GP_OK
               : gp_fail_errno(err, GP_ENOMEM, "no memory for %llu bytes of arrays",
                               (unsigned long long)bytes);
}

/* Write header, class names, samples and targets to the file, then seal it. */
static gp_status arrays_write(int fd, const arrays_header *header, const gp_store_info *info,
                              const void *samples, const void *targets, gp_error *err)
{
    const arrays_places at = places_of(info, header->names_bytes);
    int32_t none[1024];
    uint64_t part, name_at = at.names,
                   target_bytes = (uint64_t)info->count * gp_targets_bytes(info->targets, 1);
    gp_status status = part_write(fd, 0, header, sizeof(*header), err);

    if (status == GP_OK && ftruncate(fd, (off_t)at.bytes) != 0)
        status =
            gp_fail_errno(err, GP_ENOMEM, "no memory for %llu bytes of arrays", (unsigned long long)at.bytes);
    for (uint32_t i = 0; header->names_bytes > 0 && i < info->class_count && status == GP_OK; i++) {
        size_t bytes = strlen(info->class_names[i]) + 1;

        status = part_write(fd, name_at, info->class_names[i], bytes, err);
        name_at += bytes;
    }
    if (status == GP_OK)
        status = part_write(fd, at.samples, samples, (uint64_t)info->count * info->sample_bytes, err);
    memset(none, 0xff, sizeof(none)); /* -1: no class */
    for (uint64_t done = 0; done < target_bytes && status == GP_OK; done += part) {
        part = targets != NULL || target_bytes - done < sizeof(none) ? target_bytes - done : sizeof(none);
        status = part_write(fd, at.targets + done, targets != NULL ? targets : none, part, err);
    }
    if (status == GP_OK && gp_seal(fd, SEALS | F_SEAL_SEAL) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot seal %llu bytes of shared memory",
                               (unsigned long long)at.bytes);
    return status;
}

gp_status gp_shared_arrays_make(int *fd, char source[GP_SHARED_ARRAYS_SOURCE_BYTES],
                                const gp_store_info *given, const void *samples, const void *targets,
                                gp_error *err)
{
    gp_store_info info = *given;
    arrays_header header = { .count = info.count,
                             .channels = info.channels,
                             .height = info.height,
                             .width = info.width,
                             .dtype = info.dtype,
                             .class_count = info.class_count,
                             .target_dtype = info.targets[0].dtype,
                             .target_rank = info.targets[0].shape.rank };
    gp_status status = info_check(&info, err);
    int made;

    if (status != GP_OK)
        return status;
    memcpy(header.magic, arrays_magic, sizeof(header.magic));
    for (uint32_t i = 0; i < header.target_rank; i++)
        header.target_dim[i] = info.targets[0].shape.dim[i];
    for (uint32_t i = 0; info.class_names != NULL && i < info.class_count; i++)
        header.names_bytes += strlen(info.class_names[i]) + 1;
    if (getrandom(&header.token, sizeof(header.token), 0) != sizeof(header.token))
        return gp_fail_errno(err, GP_EIO, "cannot get a random token");
    made = memfd_create("gradpool-arrays", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return gp_fail_errno(err, GP_ELIMIT, "cannot create shared memory for arrays");
    status = arrays_write(made, &header, &info, samples, targets, err);
    if (status != GP_OK) {
        close(made);
        return status;
    }
    snprintf(source, GP_SHARED_ARRAYS_SOURCE_BYTES, "arrays:%d:%d:%016" PRIx64, (int)getpid(), made,
             header.token);
    *fd = made;
    return GP_OK;
}

/* ---- passing the descriptor ---- */

/* Pass the descriptor of shared arrays over a socket. Processes whose /proc entry is not readable
 * (those with credentials) can share too, and no descriptor number has to be trusted.
 *
 * The socket has an abstract name built from the source's PID and token, so it leaves no file
 * behind. Both ends check the other's user id. */
enum { BACKLOG = 128, ANSWER_S = 20 };

struct gp_lender {
    int arrays, listener, stop; /* `arrays` is borrowed from the caller */
    pthread_t thread;
};

static socklen_t address_of(struct sockaddr_un *address, unsigned pid, uint64_t token)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                          "gradpool-arrays:%u:%016" PRIx64, pid, token);

    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

/* Thread function: send the descriptor to each client until `stop` is signalled. */
static void *lender_main(void *argument)
{
    gp_lender *lender = argument;
    struct pollfd fds[] = { { .fd = lender->stop, .events = POLLIN },
                            { .fd = lender->listener, .events = POLLIN } };

    while (poll(fds, 2, -1) >= 0 || errno == EINTR) {
        if (fds[0].revents != 0)
            break;
        int asking = accept4(lender->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (asking >= 0 && is_ours(asking))
            /* ignore errors: the peer may have exited */
            (void)gp_packet_send(asking, "", 1, &lender->arrays, 1);
        if (asking >= 0)
            close(asking);
        else if (errno == EMFILE || errno == ENFILE)
            poll(fds, 1, 100); /* out of descriptors: let the peer wait, then try again */
    }
    return NULL;
}

gp_status gp_shared_arrays_serve(gp_lender **out, int fd, const char *source, gp_error *err)
{
    gp_lender *lender = gp_calloc(1, sizeof(*lender));
    struct sockaddr_un address;
    unsigned pid = 0, descriptor;
    uint64_t token = 0;

    if (lender == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for shared arrays");
    sscanf(source, "arrays:%u:%u:%" SCNx64, &pid, &descriptor, &token);
    const socklen_t length = address_of(&address, pid, token);

    lender->arrays = fd;
    lender->stop = eventfd(0, EFD_CLOEXEC);
    lender->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lender->stop >= 0 && lender->listener >= 0 &&
        bind(lender->listener, (struct sockaddr *)&address, length) == 0 &&
        listen(lender->listener, BACKLOG) == 0 &&
        gp_thread_start(&lender->thread, "gp-lender", 0, lender_main, lender) == 0) {
        *out = lender;
        return GP_OK;
    }
    gp_status status = gp_fail_errno(err, GP_ELIMIT, "cannot create a socket or thread for shared arrays");

    if (lender->stop >= 0)
        close(lender->stop);
    if (lender->listener >= 0)
        close(lender->listener);
    gp_free(lender);
    return status;
}

void gp_shared_arrays_serve_end(gp_lender *lender)
{
    if (lender == NULL)
        return;
    (void)!write(lender->stop, &(uint64_t){ 1 }, sizeof(uint64_t));
    pthread_join(lender->thread, NULL);
    close(lender->stop);
    close(lender->listener);
    gp_free(lender);
}

/* Request the descriptor of shared arrays from their owner; -1: no process serves them. */
static int descriptor_ask(unsigned pid, uint64_t token)
{
    const struct timeval retry = { .tv_sec = ANSWER_S };
    struct sockaddr_un address;
    const socklen_t length = address_of(&address, pid, token);
    int from = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd = -1;
    gp_packet_fds fds;
    ssize_t got;
    char byte;
    bool cut;

    if (from < 0)
        return -1;
    setsockopt(from, SOL_SOCKET, SO_RCVTIMEO, &retry, sizeof(retry));
    /* also limits connect() */
    setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &retry, sizeof(retry));
    if (connect(from, (struct sockaddr *)&address, length) == 0 && is_ours(from)) {
        do
            got = gp_packet_receive(from, &byte, 1, 0, &fds, &cut);
        while (got < 0 && errno == EINTR);
        if (got == 1 && !cut && fds.count == 1)
            fd = fds.fd[0];
        else
            gp_packet_fds_close(&fds);
    }
    close(from);
    return fd;
}

/* ---- reading ---- */

/* Open the file of a source: ask the owner for the descriptor, or else use /proc. GP_EPERM: the
 * file belongs to another user. */
static gp_status arrays_open_file(int *out, const char *source, uint64_t *token, gp_error *err)
{
    unsigned pid, descriptor;
    char path[64], end;
    struct stat stat_;
    int fd;

    if (sscanf(source, "arrays:%u:%u:%" SCNx64 "%c", &pid, &descriptor, token, &end) != 3)
        return gp_fail(err, GP_EINVAL,
                       "\"%s\" is not a source of arrays; use the result of gp_array_dataset_source()",
                       source);
    fd = descriptor_ask(pid, *token);
    snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid, descriptor);
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return gp_fail_errno(
            err, errno == EACCES ? GP_EPERM : GP_ENOENT,
            "cannot open the arrays %s: program %u has exited or freed them, or belongs to another user",
            source, pid);
    if (fstat(fd, &stat_) != 0 || !S_ISREG(stat_.st_mode) || stat_.st_uid != geteuid()) {
        close(fd);
        return gp_fail(err, GP_EPERM, "%s is not shared memory of this user", source);
    }
    *out = fd;
    return GP_OK;
}

/* Map a file. GP_ECORRUPT: it is not sealed, or has no room for a header. */
static gp_status arrays_map(gp_decoded *map, int fd, const char *source, gp_error *err)
{
    struct stat stat_;
    const void *data;

    if (fstat(fd, &stat_) != 0 || stat_.st_size < (off_t)sizeof(arrays_header))
        return gp_fail(err, GP_ECORRUPT, "%s is not sealed shared memory of arrays", source);
    gp_status status = gp_seal_map(&data, fd, (size_t)stat_.st_size, err);

    if (status == GP_EPROTO)
        return gp_fail(err, GP_ECORRUPT, "%s is not sealed shared memory of arrays", source);
    if (status == GP_OK)
        *map =
            (gp_decoded){ .data = data, .map = (void *)(uintptr_t)data, .map_bytes = (size_t)stat_.st_size };
    return status;
}

/* Fill in the description from the header, and check it against the file size. */
static gp_status arrays_describe(const gp_decoded *map, gp_store_info *info, uint64_t token, gp_error *err)
{
    const arrays_header *header = map->map;
    gp_status status;

    if (memcmp(header->magic, arrays_magic, sizeof(arrays_magic)) != 0 || header->token != token)
        return gp_fail(err, GP_ENOENT, "the arrays %s have been freed", info->source);
    info->count = header->count;
    info->channels = header->channels;
    info->height = header->height;
    info->width = header->width;
    info->dtype = (gp_dtype)header->dtype;
    info->class_count = header->class_count;
    info->targets[0].dtype = (gp_dtype)header->target_dtype;
    info->targets[0].shape.rank = header->target_rank;
    for (uint32_t i = 0; i < header->target_rank && i < 3; i++)
        info->targets[0].shape.dim[i] = header->target_dim[i];
    status = info_check(info, err);
    if (status != GP_OK)
        return status;
    if (header->names_bytes > (uint64_t)GP_STORE_CLASSES_MAX * 256 ||
        places_of(info, header->names_bytes).bytes != map->map_bytes)
        return gp_fail(err, GP_ECORRUPT, "%s has %zu bytes, which does not match its header", info->source,
                       map->map_bytes);
    return GP_OK;
}

/* Collect the class names from the file; *out remains NULL if the file lacks names. */
static gp_status arrays_names(const gp_decoded *map, const gp_store_info *info, const char ***out,
                              gp_error *err)
{
    const arrays_header *header = map->map;
    const char *at = (const char *)map->map + places_of(info, header->names_bytes).names,
               *end = at + header->names_bytes;
    const char **names;

    if (header->names_bytes == 0)
        return GP_OK;
    names = gp_calloc(info->class_count, sizeof(*names));
    if (names == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u class names", info->class_count);
    for (uint32_t i = 0; i < info->class_count; i++) {
        const char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

        if (nul == NULL) {
            gp_free(names);
            return gp_fail(err, GP_ECORRUPT, "%s has names for %u of %u classes", info->source, i,
                           info->class_count);
        }
        names[i] = at;
        at = nul + 1;
    }
    *out = names;
    return GP_OK;
}

/* Open shared arrays for any role except GP_DATA_TEST. GP_ENOENT: the arrays no longer exist.
 * GP_EPERM: they belong to another user. GP_ECORRUPT: not sealed, or malformed. */
gp_status gp_store_open_shared_arrays(gp_store **out, const char *source, gp_data_role role,
                                      const gp_store_options *options, gp_error *err)
{
    gp_store_info info = { .source = source, .kind = "arrays" };
    gp_decoded map = { .map = NULL };
    const char **names = NULL;
    uint64_t token = 0;
    gp_status status;
    int fd = -1;

    (void)options;
    if (role == GP_DATA_TEST)
        return gp_fail(err, GP_ENOENT, "the arrays %s have no test part", source);
    status = arrays_open_file(&fd, source, &token, err);
    if (status != GP_OK)
        return status;
    status = arrays_map(&map, fd, source, err);
    close(fd); /* the mapping remains */
    if (status == GP_OK)
        status = arrays_describe(&map, &info, token, err);
    if (status == GP_OK)
        status = arrays_names(&map, &info, &names, err);
    if (status == GP_OK) {
        const arrays_places at = places_of(&info, ((const arrays_header *)map.map)->names_bytes);
        const uint8_t *file = map.map;

        info.class_names = names;
        map.data = file + at.samples;
        status = gp_store_open_decoded(out, &info, &map, file + at.targets, NULL, err);
    }
    gp_free(names);
    gp_decoded_deinit(&map);
    return status;
}
