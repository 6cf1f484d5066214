#include "worker/task/values.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/secret.h"
#include "common/base/text/spell.h"
#include "worker/task/blobs.h"

typedef struct named {
    struct named *next; /* next entry in the bucket */
    struct named *older, *younger;
    gp_cached_value kept;
    char name[];
} named;

struct gp_names {
    uint32_t count, count_max; /* count_max: a power of two */
    named **buckets;           /* [count_max]; pages that no name uses are never touched */
    named *youngest;
};

gp_status gp_names_new(gp_names **out, uint32_t count_max, gp_error *err)
{
    gp_names *names = gp_calloc(1, sizeof(*names));

    if (names != NULL)
        names->buckets = gp_calloc(count_max, sizeof(named *));
    if (names == NULL || names->buckets == NULL) {
        gp_free(names);
        return gp_fail(err, GP_ENOMEM, "no memory for names");
    }
    names->count_max = count_max;
    *out = names;
    return GP_OK;
}

static void kept_drop(gp_cached_value *kept)
{
    if (kept->drop != NULL)
        kept->drop(kept->built);
    gp_view_close(&kept->view);
    if (kept->fd >= 0)
        close(kept->fd);
    gp_free(kept->path);
}

void gp_names_free(gp_names *names)
{
    if (names == NULL)
        return;
    while (names->youngest != NULL) {
        named *gone = names->youngest;

        names->youngest = gone->older;
        kept_drop(&gone->kept);
        gp_free(gone);
    }
    gp_free(names->buckets);
    gp_free(names);
}

static named **place_of(const gp_names *names, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325; /* 64-bit FNV-1a (Fowler, Noll, Vo) */

    for (const char *at = name; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
    named **place = &names->buckets[hash & (names->count_max - 1)];

    while (*place != NULL && strcmp((*place)->name, name) != 0)
        place = &(*place)->next;
    return place;
}

const gp_cached_value *gp_names_find(const gp_names *names, const char *name)
{
    named *found = *place_of(names, name);

    return found == NULL ? NULL : &found->kept;
}

gp_status gp_names_set(gp_names *names, const char *name, const gp_cached_value *kept, gp_error *err)
{
    size_t length = name == NULL ? 0 : strlen(name);
    named *at;

    if (length == 0 || length > GP_TASK_NAME_MAX)
        return gp_fail(err, GP_EINVAL, "invalid name of %zu bytes: must have 1 to %d", length,
                       GP_TASK_NAME_MAX);
    at = *place_of(names, name);
    if (at != NULL) {
        kept_drop(&at->kept);
    } else {
        if (names->count >= names->count_max)
            return gp_fail(err, GP_ELIMIT,
                           "the worker has reached its limit of %u values; remove some before setting \"%s\"",
                           names->count, name);
        at = gp_calloc(1, sizeof(*at) + length + 1);
        if (at == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for \"%s\"", name);
        strcpy(at->name, name);
        at->older = names->youngest;
        if (names->youngest != NULL)
            names->youngest->younger = at;
        names->youngest = at;
        *place_of(names, name) = at;
        names->count++;
    }
    at->kept = *kept;
    return GP_OK;
}

void gp_names_remove(gp_names *names, const char *name)
{
    named **place = place_of(names, name), *gone = *place;

    if (gone == NULL)
        return;
    *place = gone->next;
    if (gone->younger != NULL)
        gone->younger->older = gone->older;
    else
        names->youngest = gone->older;
    if (gone->older != NULL)
        gone->older->younger = gone->younger;
    names->count--;
    kept_drop(&gone->kept);
    gp_free(gone);
}

/* ---- calls ---- */

gp_status gp_value_put_call(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    gp_cached_value kept = { .fd = -1 };
    char name[GP_TASK_NAME_MAX + 1];
    gp_view rest;
    gp_status status = gp_tasks_name(call, name, &rest, err);

    (void)out;
    if (status != GP_OK)
        return status;
    if ((call->flags & GP_CALL_REMOVE) != 0) {
        gp_names_remove(tasks->values, name);
        return GP_OK;
    }
    atomic_store(&tasks->server->used, 1);
    if (call->blob != 0)
        status = gp_tasks_keep(tasks, call, &kept.view, err);
    else
        status = gp_view_copy(&kept.view, rest.data, rest.bytes, err);
    if (status == GP_OK)
        status = gp_names_set(tasks->values, name, &kept, err);
    if (status != GP_OK)
        gp_view_close(&kept.view);
    return status;
}

gp_status gp_value_get_call(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    char name[GP_TASK_NAME_MAX + 1];
    const gp_cached_value *kept;
    gp_status status = gp_tasks_name(call, name, NULL, err);

    if (status != GP_OK)
        return status;
    kept = gp_names_find(tasks->values, name);
    if (kept == NULL)
        return gp_fail(err, GP_ENOENT, "no value \"%s\"", name);
    out->data = kept->view.data;
    out->bytes = kept->view.bytes;
    return GP_OK;
}

gp_status gp_value_file(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    const int needed = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    gp_cached_value kept = { .fd = -1 };
    char name[GP_TASK_NAME_MAX + 1], path[48];
    gp_status status = gp_tasks_name(call, name, NULL, err);
    int seals;

    (void)out;
    if (status == GP_OK)
        status = gp_blobs_file(tasks->server->blobs, call->blob, &kept.fd, err);
    if (status != GP_OK)
        return status;
    seals = fcntl(kept.fd, F_GET_SEALS);
    /* /proc/PID rather than /proc/self: a task's child processes can open the path too. */
    gp_secret_guard_files();
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), kept.fd);
    kept.path = gp_strdup(path);
    if (seals < 0 || (seals & needed) != needed)
        status = gp_fail(err, GP_EPERM, "the file \"%s\" is not sealed against writing", name);
    else if (kept.path == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the file \"%s\"", name);
    else
        status = gp_names_set(tasks->files, name, &kept, err);
    if (status != GP_OK)
        kept_drop(&kept);
    return status;
}
