/* Shared arrays: create, open and verify the sealed memory files. */
#include "common/data/source/lent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/seal.h"
#include "common/data/source/sources.h"
#include "common/data/store/store_ops.h"

enum { ALIGNMENT = 64, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/* File header. The class names follow, each with a NUL, then the samples, then the targets. */
typedef struct lent_header {
    char magic[8];
    uint64_t token;
    uint32_t count, channels, height, width, dtype, class_count;
    uint32_t target_dtype, target_rank;
    int64_t target_dim[4];
    uint64_t names_bytes;
} lent_header;

static const char lent_magic[8] = "gplent1";

/* Offsets of the parts, and total size, in bytes. */
typedef struct lent_places {
    uint64_t names, samples, targets, bytes;
} lent_places;

typedef struct lent_store {
    gp_store store;
    uint8_t *map;
    size_t bytes;
    const uint8_t *samples, *targets;
} lent_store;

bool gp_lent_is(const char *source)
{
    return strncmp(source, "arrays:", 7) == 0;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Compute the layout. The numbers are within their limits, so nothing overflows. */
static lent_places places_of(const gp_store_info *info, uint64_t names_bytes)
{
    lent_places at = { .names = aligned(sizeof(lent_header)) };

    at.samples = at.names + aligned(names_bytes);
    at.targets = at.samples + aligned((uint64_t)info->count * info->channels * info->height * info->width *
                                      gp_dtype_bytes(info->dtype));
    at.bytes = at.targets + aligned((uint64_t)info->count * gp_targets_bytes(info->targets, 1));
    return at;
}

/* Check a description against the limits. GP_ELIMIT: a size is out of range. */
static gp_status info_check(const gp_store_info *info, gp_error *err)
{
    const gp_shape *target = &info->targets[0].shape;
    uint64_t elements = 1;

    if (info->count < 1 || info->count > GP_STORE_SAMPLES_MAX || info->channels < 1 ||
        info->channels > GP_STORE_CHANNELS_MAX || info->height < 1 || info->height > GP_STORE_SIDE_MAX ||
        info->width < 1 || info->width > GP_STORE_SIDE_MAX || (info->dtype != GP_U8 && info->dtype != GP_F32))
        return gp_fail(
            err, GP_ELIMIT,
            "arrays of %ux%ux%ux%u (samples, channels, height, width); 1 to %d samples of bytes or float32, "
            "%d channels and sides of %d are possible",
            info->count, info->channels, info->height, info->width, GP_STORE_SAMPLES_MAX,
            GP_STORE_CHANNELS_MAX, GP_STORE_SIDE_MAX);
    if (info->class_count > GP_STORE_CLASSES_MAX || target->rank > 3 ||
        (info->targets[0].dtype != GP_I32 && info->targets[0].dtype != GP_F32))
        return gp_fail(err, GP_ELIMIT,
                       "arrays with %u classes and targets of rank %u; at most %d and 3 are possible",
                       info->class_count, target->rank, GP_STORE_CLASSES_MAX);
    for (uint32_t i = 0; i < target->rank; i++) {
        if (target->dim[i] < 1 || target->dim[i] > GP_STORE_TARGET_MAX)
            return gp_fail(err, GP_ELIMIT, "targets with a side of %lld", (long long)target->dim[i]);
        elements *= (uint64_t)target->dim[i];
        if (elements > GP_STORE_TARGET_MAX)
            return gp_fail(err, GP_ELIMIT, "targets of %llu elements", (unsigned long long)elements);
    }
    if (places_of(info, 0).bytes > GP_STORE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "arrays of %llu bytes; at most %llu are possible",
                       (unsigned long long)places_of(info, 0).bytes, (unsigned long long)GP_STORE_BYTES_MAX);
    return GP_OK;
}

/* ---- creating ---- */

static gp_status part_write(int fd, uint64_t at, const void *data, uint64_t bytes, gp_error *err)
{
    const uint8_t *from = data;

    while (bytes > 0) {
        ssize_t n = pwrite(fd, from, bytes < (1u << 30) ? bytes : 1u << 30, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return gp_fail_errno(err, GP_ENOMEM, "no memory for %llu bytes of arrays",
                                 (unsigned long long)bytes);
        from += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return GP_OK;
}

/* Write -1 (no class) for each target. */
static gp_status nothing_write(int fd, uint64_t at, uint64_t bytes, gp_error *err)
{
    int32_t none[1024];
    gp_status status = GP_OK;

    memset(none, 0xff, sizeof(none));
    for (uint64_t part; bytes > 0 && status == GP_OK; at += part, bytes -= part) {
        part = bytes < sizeof(none) ? bytes : sizeof(none);
        status = part_write(fd, at, none, part, err);
    }
    return status;
}

/* Write header, class names, samples and targets to the file, then seal it. */
static gp_status lent_write(int fd, const lent_header *header, const gp_store_info *info, const void *samples,
                            const void *targets, gp_error *err)
{
    const lent_places at = places_of(info, header->names_bytes);
    uint64_t name_at = at.names, target_bytes = (uint64_t)info->count * gp_targets_bytes(info->targets, 1);
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
    if (status == GP_OK)
        status = targets == NULL ? nothing_write(fd, at.targets, target_bytes, err)
                                 : part_write(fd, at.targets, targets, target_bytes, err);
    if (status == GP_OK && gp_seal(fd, SEALS | F_SEAL_SEAL) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot seal a memory file of %llu bytes",
                               (unsigned long long)at.bytes);
    return status;
}

gp_status gp_lent_make(int *fd, char source[GP_LENT_SOURCE_BYTES], const gp_store_info *given,
                       const void *samples, const void *targets, gp_error *err)
{
    gp_store_info info = *given;
    lent_header header = { .count = info.count,
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
    info.target_count = 1;
    info.sample_bytes = (size_t)info.channels * info.height * info.width * gp_dtype_bytes(info.dtype);
    memcpy(header.magic, lent_magic, sizeof(header.magic));
    for (uint32_t i = 0; i < header.target_rank; i++)
        header.target_dim[i] = info.targets[0].shape.dim[i];
    for (uint32_t i = 0; info.class_names != NULL && i < info.class_count; i++)
        header.names_bytes += strlen(info.class_names[i]) + 1;
    if (getrandom(&header.token, sizeof(header.token), 0) != sizeof(header.token))
        return gp_fail_errno(err, GP_EIO, "no random number for a name");
    made = memfd_create("gradpool-arrays", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return gp_fail_errno(err, GP_ELIMIT, "no memory file for arrays");
    status = lent_write(made, &header, &info, samples, targets, err);
    if (status != GP_OK) {
        close(made);
        return status;
    }
    snprintf(source, GP_LENT_SOURCE_BYTES, "arrays:%d:%d:%016" PRIx64, (int)getpid(), made, header.token);
    *fd = made;
    return GP_OK;
}

/* ---- reading ---- */

static gp_status lent_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                           void *targets, gp_error *err)
{
    const lent_store *lent = (const lent_store *)store;
    const size_t bytes = store->info.sample_bytes, target_bytes = store->info.target_bytes;

    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        if (samples != NULL)
            memcpy((uint8_t *)samples + i * bytes, lent->samples + index[i] * bytes, bytes);
        if (targets != NULL)
            memcpy((uint8_t *)targets + i * target_bytes, lent->targets + index[i] * target_bytes,
                   target_bytes);
    }
    return GP_OK;
}

static void lent_close(gp_store *store)
{
    lent_store *lent = (lent_store *)store;

    if (lent->map != NULL)
        munmap(lent->map, lent->bytes);
    gp_store_deinit(store);
    gp_free(lent);
}

static const gp_store_ops lent_ops = { .read = lent_read, .close = lent_close };

/* Open the file of a source: ask the owner for the descriptor, or else use /proc. GP_EPERM: the
 * file belongs to another user. */
static gp_status lent_open_file(int *out, const char *source, uint64_t *token, gp_error *err)
{
    unsigned pid, descriptor;
    char path[64], end;
    struct stat stat_;
    int fd;

    if (sscanf(source, "arrays:%u:%u:%" SCNx64 "%c", &pid, &descriptor, token, &end) != 3)
        return gp_fail(err, GP_EINVAL, "\"%s\" names no arrays; it is what gp_array_dataset_source() gives",
                       source);
    fd = gp_lent_ask(pid, *token);
    snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid, descriptor);
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return gp_fail_errno(
            err, errno == EACCES ? GP_EPERM : GP_ENOENT,
            "the arrays %s are not there: the program %u that lent them has ended or freed them, or is "
            "none that this one may look into",
            source, pid);
    if (fstat(fd, &stat_) != 0 || !S_ISREG(stat_.st_mode) || stat_.st_uid != geteuid()) {
        close(fd);
        return gp_fail(err, GP_EPERM, "%s is no memory file of this user's", source);
    }
    *out = fd;
    return GP_OK;
}

static gp_status lent_map(lent_store *lent, int fd, const char *source, gp_error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat stat_;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &stat_) != 0 ||
        stat_.st_size < (off_t)sizeof(lent_header))
        return gp_fail(err, GP_ECORRUPT, "%s is no sealed memory file of arrays", source);
    lent->bytes = (size_t)stat_.st_size;
    lent->map = mmap(NULL, lent->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (lent->map != MAP_FAILED)
        return GP_OK;
    lent->map = NULL;
    return gp_fail_errno(err, GP_ENOMEM, "cannot map the %zu bytes of %s", lent->bytes, source);
}

/* Fill in the description from the header, and check it against the file size. */
static gp_status lent_describe(lent_store *lent, gp_store_info *info, uint64_t token, gp_error *err)
{
    const lent_header *header = (const lent_header *)(const void *)lent->map;
    lent_places at;
    gp_status status;

    if (memcmp(header->magic, lent_magic, sizeof(lent_magic)) != 0 || header->token != token)
        return gp_fail(err, GP_ENOENT, "the arrays %s are not there any more", info->source);
    info->count = header->count;
    info->channels = header->channels;
    info->height = header->height;
    info->width = header->width;
    info->dtype = (gp_dtype)header->dtype;
    info->class_count = header->class_count;
    info->target_count = 1;
    info->targets[0].dtype = (gp_dtype)header->target_dtype;
    info->targets[0].shape.rank = header->target_rank;
    for (uint32_t i = 0; i < header->target_rank && i < 3; i++)
        info->targets[0].shape.dim[i] = header->target_dim[i];
    status = info_check(info, err);
    if (status != GP_OK)
        return status;
    if (header->names_bytes > (uint64_t)GP_STORE_CLASSES_MAX * 256 ||
        places_of(info, header->names_bytes).bytes != lent->bytes)
        return gp_fail(err, GP_ECORRUPT, "%s has %zu bytes, which is not what its header says", info->source,
                       lent->bytes);
    at = places_of(info, header->names_bytes);
    lent->samples = lent->map + at.samples;
    lent->targets = lent->map + at.targets;
    return GP_OK;
}

/* Collect the class names from the file; *out remains NULL if the file lacks names. */
static gp_status lent_names(const lent_store *lent, const gp_store_info *info, const char ***out,
                            gp_error *err)
{
    const lent_header *header = (const lent_header *)(const void *)lent->map;
    const char *at = (const char *)lent->map + places_of(info, header->names_bytes).names,
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
            return gp_fail(err, GP_ECORRUPT, "%s has names of %u of %u classes", info->source, i,
                           info->class_count);
        }
        names[i] = at;
        at = nul + 1;
    }
    *out = names;
    return GP_OK;
}

static gp_status labels_check(const lent_store *lent, const gp_store_info *info, gp_error *err)
{
    const int32_t *labels = (const int32_t *)(const void *)lent->targets;
    const uint64_t each = (uint64_t)gp_shape_count(&info->targets[0].shape), count = each * info->count;

    for (uint64_t i = 0; info->targets[0].dtype == GP_I32 && i < count; i++)
        if (labels[i] < -1 || labels[i] >= (int64_t)info->class_count)
            return gp_fail(err, GP_ECORRUPT,
                           "the label of sample %llu is %d; there are %u classes, and -1 is none",
                           (unsigned long long)(i / each), labels[i], info->class_count);
    return GP_OK;
}

/* Map the file, check its contents, and initialize the store. */
static gp_status lent_build(lent_store *lent, const char *source, int fd, uint64_t token, gp_error *err)
{
    gp_store_info info = { .source = source, .kind = "arrays" };
    const char **names = NULL;
    gp_status status = lent_map(lent, fd, source, err);

    if (status == GP_OK)
        status = lent_describe(lent, &info, token, err);
    if (status == GP_OK)
        status = labels_check(lent, &info, err);
    if (status == GP_OK)
        status = lent_names(lent, &info, &names, err);
    if (status == GP_OK) {
        info.class_names = names;
        status = gp_store_init(&lent->store, &lent_ops, &info, err);
    }
    gp_free(names);
    return status == GP_OK ? gp_store_seal(&lent->store, err) : status;
}

/* Open shared arrays for any role except GP_DATA_TEST. GP_ENOENT: the arrays no longer exist.
 * GP_EPERM: they belong to another user. GP_ECORRUPT: not sealed, or malformed. */
gp_status gp_store_open_lent(gp_store **out, const char *source, gp_data_role role,
                             const gp_store_options *options, gp_error *err)
{
    uint64_t token = 0;
    lent_store *lent;
    gp_status status;
    int fd = -1;

    (void)options;
    if (role == GP_DATA_TEST)
        return gp_fail(err, GP_ENOENT, "%s are arrays without a test part", source);
    status = lent_open_file(&fd, source, &token, err);
    if (status != GP_OK)
        return status;
    lent = gp_calloc(1, sizeof(*lent));
    status = lent == NULL ? gp_fail(err, GP_ENOMEM, "no memory for the store of %s", source)
                          : lent_build(lent, source, fd, token, err);
    close(fd); /* the mapping remains */
    if (status != GP_OK) {
        if (lent != NULL)
            lent_close(&lent->store);
        return status;
    }
    *out = &lent->store;
    return GP_OK;
}
