/* queue.c: data queues, which carry items from running tasks to the client. */
#include <string.h>

#include "client/team/team.h"
#include "common/base/memory/alloc.h"
#include "proto/task/link.h"

enum { QUEUE_DEPTH = 1024, QUEUE_DEPTH_MAX = 1 << 24 };

typedef struct queue_item {
    struct queue_item *next;
    uint32_t worker; /* number in the team, from 1 */
    size_t bytes;
    _Alignas(16) unsigned char data[];
} queue_item;

struct gp_queue {
    gp_queue *next;
    gp_team *team;
    gp_queue_options options;
    uint32_t count;
    queue_item *first, *last;
    uint64_t dropped;
    char name[GP_TASK_NAME_MAX + 1];
};

static gp_queue *queue_find(const gp_team *team, const char *name)
{
    for (gp_queue *queue = team->queues; queue != NULL; queue = queue->next)
        if (strcmp(queue->name, name) == 0)
            return queue;
    return NULL;
}

bool queue_blocks(const gp_team *team, const char *name)
{
    const gp_queue *queue = queue_find(team, name);

    return queue != NULL && queue->options.on_item == NULL && !queue->options.keep_newest &&
           queue->count >= queue->options.depth;
}

static queue_item *item_pop(gp_queue *queue)
{
    queue_item *item = queue->first;

    if (item != NULL) {
        queue->first = item->next;
        if (queue->first == NULL)
            queue->last = NULL;
        queue->count--;
    }
    return item;
}

/* Deliver an item: to the callback, or else into the queue. Count the item as dropped if there is
 * no queue, no memory or no room. */
void queue_take(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes)
{
    gp_queue *queue = queue_find(team, name);
    queue_item *item;

    if (queue == NULL) {
        team->info.log_dropped++;
        return;
    }
    if (queue->options.on_item != NULL) {
        const gp_team *before = team_callback_begin(team);
        _Alignas(16) unsigned char copy[GP_LINK_INLINE_MAX];

        /* Align the data to 16 bytes. In a record it follows the queue name; larger items are
         * page-aligned mappings. */
        if ((uintptr_t)data % 16 != 0 && bytes <= sizeof(copy))
            data = memcpy(copy, data, bytes);
        queue->options.on_item(queue->options.context, worker, data, bytes);
        team_callback_end(before);
        return;
    }
    item = bytes > SIZE_MAX - sizeof(*item) ? NULL : gp_malloc(sizeof(*item) + bytes);
    if (item == NULL) {
        queue->dropped++;
        return;
    }
    *item = (queue_item){ .worker = worker, .bytes = bytes };
    if (bytes != 0)
        memcpy(item->data, data, bytes);
    if (queue->options.keep_newest && queue->count >= queue->options.depth) {
        gp_free(item_pop(queue));
        queue->dropped++;
    }
    if (queue->last != NULL)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
    queue->count++;
}

/* Resume reading the rings that were blocked by a full queue. */
static void unblock(gp_team *team)
{
    EACH_WORKER(team, w)
    worker_of(team, w)->blocked = false;
}

gp_status gp_queue_open(gp_queue **out, gp_team *team, const char *name, const gp_queue_options *options,
                        gp_error *err)
{
    static const gp_queue_options usual;
    size_t length = strlen(name);
    gp_queue *queue;
    gp_status status = GP_OK;

    if (options == NULL)
        options = &usual;
    if (length == 0 || length > GP_TASK_NAME_MAX)
        return gp_fail(err, GP_EINVAL, "the name of a queue must have 1 to %d bytes, not %zu",
                       GP_TASK_NAME_MAX, length);
    if (options->depth > QUEUE_DEPTH_MAX)
        return gp_fail(err, GP_EINVAL, "the depth of a queue must be at most %d, not %u", QUEUE_DEPTH_MAX,
                       options->depth);
    queue = gp_calloc(1, sizeof(*queue));
    if (queue == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a queue");
    queue->team = team;
    queue->options = *options;
    if (queue->options.depth == 0)
        queue->options.depth = QUEUE_DEPTH;
    memcpy(queue->name, name, length);
    team_enter(team);
    if (queue_find(team, name) != NULL) {
        status = gp_fail(err, GP_EINVAL, "the team already has a queue '%s'", name);
        gp_free(queue);
    } else {
        queue->next = team->queues;
        team->queues = queue;
        *out = queue;
    }
    team_leave(team);
    return status;
}

static void queue_free(gp_queue *queue)
{
    for (queue_item *item; (item = item_pop(queue)) != NULL;)
        gp_free(item);
    gp_free(queue);
}

void gp_queue_close(gp_queue *queue)
{
    if (queue == NULL)
        return;
    gp_team *team = queue->team;

    team_enter(team);
    for (gp_queue **at = &team->queues; *at != NULL; at = &(*at)->next)
        if (*at == queue) {
            *at = queue->next;
            break;
        }
    unblock(team);
    queue_free(queue);
    team_leave(team);
}

void queues_free(gp_team *team)
{
    while (team->queues != NULL) {
        gp_queue *next = team->queues->next;

        queue_free(team->queues);
        team->queues = next;
    }
}

static bool queue_has_item(void *context)
{
    return ((const gp_queue *)context)->first != NULL;
}

gp_status gp_queue_next(gp_queue *queue, uint32_t *worker, void **data, size_t *bytes, int timeout_ms,
                        gp_error *err)
{
    gp_team *team = queue->team;
    gp_status status;

    team_enter(team);
    status = team_poll(team, queue_has_item, queue, timeout_ms, err);
    if (status == GP_OK) {
        queue_item *item = item_pop(queue);
        size_t count = item->bytes;

        if (worker != NULL)
            *worker = item->worker;
        memmove(item, item->data, count); /* the caller frees the block that starts here */
        *data = item;
        *bytes = count;
        if (queue->count < queue->options.depth)
            unblock(team);
    }
    team_leave(team);
    return status;
}

uint64_t gp_queue_dropped(const gp_queue *queue)
{
    uint64_t dropped;

    team_lock(queue->team);
    dropped = queue->dropped;
    team_unlock(queue->team);
    return dropped;
}
