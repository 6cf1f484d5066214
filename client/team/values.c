/* values.c: named values on the workers, and files for tasks.
 *
 * A value is a broadcast, so replacements of a worker receive it too. A later value of the same
 * name replaces it. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/team/team.h"
#include "client/team/values.h"
#include "common/base/memory/alloc.h"

void gp_buffer_free(void *data)
{
    gp_free(data);
}

gp_status value_check_name(const char *name, gp_error *err)
{
    size_t length = name == NULL ? 0 : strlen(name);

    if (length == 0 || length > GP_TASK_NAME_MAX)
        return gp_fail(err, GP_EINVAL, "the name of a value must have 1 to %d bytes, not %zu",
                       GP_TASK_NAME_MAX, length);
    return GP_OK;
}

/* Broadcast a value or file, and remove the older ones that it replaces: those with the same
 * name and for the same or fewer workers. A value for all workers stays in the list before a
 * value for one worker; the replay order keeps the later value. The removal of a value from all
 * workers does not stay either: no older value is left that a replacement would receive. If the
 * broadcast fails, replacements receive the older values as before. */
static gp_status value_set(gp_team *team, uint32_t worker, const char *name, const team_call *call,
                           gp_error *err)
{
    team_broadcast *broadcast;
    gp_status status = team_broadcast_add(&broadcast, team, call, worker, err);

    if (status != GP_OK)
        return status;
    const bool stays = (call->flags & GP_CALL_REMOVE) == 0 || worker != GP_EVERY_WORKER;
    uint64_t workers = broadcast->wanted;
    size_t length = strlen(name);

    status = team_broadcast_wait(team, broadcast, err);
    if (status != GP_OK) {
        team_broadcast_remove(team, broadcast);
        return status;
    }
    for (team_broadcast *b = team->broadcasts, *next; b != NULL; b = next) {
        const char *payload = b->call.payload;

        next = b->next;
        if ((b != broadcast || !stays) && b->call.kind == call->kind && b->call.bytes >= length &&
            memcmp(payload, name, length) == 0 && (b->call.bytes == length || payload[length] == '\0') &&
            (b->wanted & ~workers) == 0)
            team_broadcast_remove(team, b);
    }
    return status;
}

/* Write a value: the head and the data. */
static void value_copy(unsigned char *to, const value_bytes *value)
{
    if (value->head_bytes != 0)
        memcpy(to, value->head, value->head_bytes);
    if (value->bytes != 0)
        memcpy(to + value->head_bytes, value->data, value->bytes);
}

gp_status value_put(gp_team *team, uint32_t worker, const char *name, const value_bytes *value, gp_error *err)
{
    size_t length = strlen(name) + 1, bytes = value->head_bytes + value->bytes;
    team_call call = { .kind = GP_CALL_PUT };
    unsigned char *joined = NULL;
    gp_broadcast *shared = NULL;
    gp_status status = team_check_worker(team, worker, err);

    if (status != GP_OK)
        return status;
    if (length + bytes > GP_LINK_INLINE_MAX) {
        void *mapped;

        status = gp_broadcast_map(&shared, &mapped, bytes, err);
        if (status == GP_OK)
            value_copy(mapped, value);
        call.payload = name;
        call.bytes = length - 1;
        call.shared = shared;
    } else {
        joined = gp_malloc(length + bytes);
        if (joined == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a value of %zu bytes", bytes);
        memcpy(joined, name, length);
        value_copy(joined + length, value);
        call.payload = joined;
        call.bytes = length + bytes;
        call.flags = value->data == NULL && bytes == 0 ? GP_CALL_REMOVE : 0;
    }
    if (status == GP_OK)
        status = value_set(team, worker, name, &call, err);
    gp_free(joined);
    gp_broadcast_free(shared);
    return status;
}

gp_status gp_team_put(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes,
                      gp_error *err)
{
    gp_status status = value_check_name(name, err);

    if (status != GP_OK)
        return status;
    if (data == NULL && bytes != 0)
        return gp_fail(err, GP_EINVAL, "the value '%s' has %zu bytes and no address", name, bytes);
    team_enter(team);
    status = value_put(team, worker, name, &(value_bytes){ .data = data, .bytes = bytes }, err);
    team_leave(team);
    return status;
}

gp_status value_to_heap(team_bytes *bytes, void **data, size_t *count, gp_error *err)
{
    void *block = bytes->data;

    if (bytes->mapped != 0) {
        block = gp_malloc(bytes->bytes);
        if (block != NULL)
            memcpy(block, bytes->data, bytes->bytes);
    }
    if (block == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a value of %zu bytes", bytes->bytes);
    *data = block;
    *count = bytes->bytes;
    if (bytes->mapped == 0)
        bytes->data = NULL;
    team_bytes_deinit(bytes);
    return GP_OK;
}

gp_status value_get(gp_team *team, uint32_t worker, const char *name, team_bytes *out, gp_error *err)
{
    const team_call call = { .kind = GP_CALL_GET, .payload = name, .bytes = strlen(name) };

    if (worker == 0 || worker > team->size)
        return gp_fail(err, GP_EINVAL, "a value is read from one worker, 1 to %" PRIu32 ", not %" PRIu32,
                       team->size, worker);
    return team_ask(team, worker, &call, out, err);
}

gp_status gp_team_get(gp_team *team, uint32_t worker, const char *name, void **data, size_t *bytes,
                      gp_error *err)
{
    team_bytes got = { 0 };
    gp_status status = value_check_name(name, err);

    if (status != GP_OK)
        return status;
    team_enter(team);
    status = value_get(team, worker, name, &got, err);
    team_leave(team);
    if (status == GP_OK)
        status = value_to_heap(&got, data, bytes, err);
    team_bytes_deinit(&got);
    return status;
}

gp_status gp_team_scatter(gp_team *team, const char *name, const void *data, size_t count,
                          size_t element_bytes, gp_error *err)
{
    const unsigned char *from = data;
    gp_status status = value_check_name(name, err);

    if (status != GP_OK)
        return status;
    if (element_bytes == 0 || count > GP_LINK_BLOB_BYTES_MAX / element_bytes || (data == NULL && count != 0))
        return gp_fail(err, GP_EINVAL, "%zu elements of %zu bytes cannot be scattered", count, element_bytes);
    team_enter(team);
    const uint32_t size = team->size; /* workers that join meanwhile get no part */

    for (uint32_t w = 1; status == GP_OK && w <= size; w++) {
        size_t share = count / size + (w <= count % size);

        status = value_put(
            team, w, name,
            &(value_bytes){ .data = from == NULL ? (const void *)"" : from, .bytes = share * element_bytes },
            err);
        if (from != NULL)
            from += share * element_bytes;
    }
    team_leave(team);
    return status;
}

gp_status gp_team_gather(gp_team *team, const char *name, void **data, size_t *bytes, gp_error *err)
{
    team_bytes parts[GP_MEMBERS_MAX] = { { 0 } };
    size_t total = 0;
    unsigned char *joined = NULL;
    gp_status status = value_check_name(name, err);

    if (status != GP_OK)
        return status;
    team_enter(team);
    const uint32_t size = team->size;

    for (uint32_t w = 1; status == GP_OK && w <= size; w++) {
        status = value_get(team, w, name, &parts[w - 1], err);
        total += parts[w - 1].bytes;
    }
    team_leave(team);
    if (status == GP_OK) {
        joined = gp_malloc(total);
        if (joined == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for %zu gathered bytes", total);
    }
    size_t at = 0;

    for (uint32_t i = 0; i < GP_MEMBERS_MAX; i++) {
        if (status == GP_OK && parts[i].bytes != 0)
            memcpy(joined + at, parts[i].data, parts[i].bytes);
        at += parts[i].bytes;
        team_bytes_deinit(&parts[i]);
    }
    if (status == GP_OK) {
        *data = joined;
        *bytes = total;
    }
    return status;
}

gp_status gp_team_attach(gp_team *team, const char *name, const char *path, gp_error *err)
{
    struct stat info;
    gp_broadcast *shared = NULL;
    gp_status status = value_check_name(name, err);
    int fd;

    if (status != GP_OK)
        return status;

    /* O_NONBLOCK: reject a pipe instead of waiting for it */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return gp_fail_errno(err, GP_ENOENT, "cannot open %s", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = gp_fail(err, GP_EINVAL, "%s is not a regular file", path);
    if (status == GP_OK)
        status = shared_from_fd(&shared, fd, (size_t)info.st_size, path, err);
    close(fd);
    if (status == GP_OK) {
        const team_call call = {
            .kind = GP_CALL_FILE, .payload = name, .bytes = strlen(name), .shared = shared
        };

        team_enter(team);
        status = value_set(team, GP_EVERY_WORKER, name, &call, err);
        team_leave(team);
    }
    gp_broadcast_free(shared);
    return status;
}
