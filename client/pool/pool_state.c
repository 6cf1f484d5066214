/* pool_state.c: query the pool state, as a struct and as JSON; resize the pool; shut it down. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/pool/remote.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/json.h"
#include "common/base/system/timeout.h"
#include "proto/local/control_socket.h"

gp_status pool_status(gp_pool *pool, gp_status_reply **out, gp_error *err)
{
    void *reply;
    gp_status status =
        pool_ask_new(pool, &gp_msg_status_get, &(gp_status_get){ 0 }, &gp_msg_status_reply, &reply, err);

    if (status == GP_OK)
        *out = reply;
    return status;
}

gp_status gp_pool_workers(gp_pool *pool, uint32_t *count, gp_error *err)
{
    gp_status_reply *reply = NULL;
    gp_status status = pool_status(pool, &reply, err);

    if (status != GP_OK)
        return status;
    *count = 0;
    for (uint32_t i = 0; i < reply->workers_count; i++)
        *count += reply->workers[i].state <= GP_WORKER_BUSY;
    gp_free(reply);
    return GP_OK;
}

gp_status gp_training_resize(gp_pool *pool, uint64_t lease, uint64_t job, uint32_t workers, gp_error *err)
{
    gp_lease_resize resize = { .lease = lease, .job = job, .workers = workers };
    gp_ok_reply ok;

    if (workers == 0 || workers > GP_MEMBERS_MAX)
        return gp_fail(err, GP_EINVAL, "the number of workers is %" PRIu32 "; it must be from 1 to %u",
                       workers, GP_MEMBERS_MAX);
    return pool_ask(pool, &gp_msg_lease_resize, &resize, &gp_msg_ok_reply, &ok, POOL_ANSWER_MS, err);
}

gp_status gp_pool_resize(gp_pool *pool, uint32_t workers, const char *devices, gp_error *err)
{
    return pool_resize(pool, workers, devices, NULL, err);
}

gp_status pool_resize(gp_pool *pool, uint32_t workers, const char *devices, const char *resources,
                      gp_error *err)
{
    gp_resize resize = { .workers = workers };
    gp_status_reply *reply = NULL;
    gp_status status;

    if (devices != NULL &&
        (size_t)snprintf(resize.devices, sizeof(resize.devices), "%s", devices) >= sizeof(resize.devices))
        return gp_fail(err, GP_ELIMIT, "the device list is longer than %zu bytes",
                       sizeof(resize.devices) - 1);
    if (resources != NULL && (size_t)snprintf(resize.resources, sizeof(resize.resources), "%s", resources) >=
                                 sizeof(resize.resources))
        return gp_fail(err, GP_ELIMIT, "the resources of the workers are longer than %zu bytes",
                       sizeof(resize.resources) - 1);
    status = pool_status(pool, &reply, err);
    if (status == GP_OK) {
        /* the message also sets the idle timeout: keep the current value */
        resize.idle_timeout_ms = reply->idle_timeout_ms;
        status = pool_ask(pool, &gp_msg_resize, &resize, &gp_msg_status_reply, reply, POOL_OPEN_MS, err);
    }
    gp_free(reply);
    return status;
}

gp_status gp_pool_shutdown(gp_pool *pool, bool when_idle, gp_error *err)
{
    gp_shutdown shutdown = { .when_idle = when_idle };
    gp_ok_reply ok;

    gp_status status =
        pool_ask(pool, &gp_msg_shutdown, &shutdown, &gp_msg_ok_reply, &ok, POOL_ANSWER_MS, err);

    /* An orderly shutdown can close the link before the reply arrives: success. A scheduler that
     * failed instead has a successor, which adopts the workers and receives the request again. */
    return status == GP_EPEER && !pool_missed(pool) ? GP_OK : status;
}

enum { GONE_DIAL_MS = 5000, GONE_PAUSE_MS = 100 };

gp_status pool_wait_gone(gp_pool *pool, int timeout_ms, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    gp_error why = { 0 };

    /* Wait until no scheduler replies at the remote endpoint. No other event reports the end of a
     * remote pool. */
    while (pool->remote != NULL) {
        gp_status status = pool_remote_dial(pool, GONE_DIAL_MS, &why);

        if (status == GP_ENOPOOL)
            return GP_OK;
        if (status == GP_OK)
            gp_fail(&why, GP_OK, "it still replies");
        gp_sleep_ms(GONE_PAUSE_MS);
        if (gp_timeout_left(timeout) == 0)
            return gp_fail(err, GP_ETIMEDOUT, "the pool at %s did not shut down within %d ms: %s",
                           pool->remote->endpoint, timeout_ms, why.message);
    }
    for (;;) {
        int64_t left = gp_timeout_left(timeout);
        struct pollfd control_socket = { .fd = pool->control_socket, .events = POLLIN };
        bool gone = gp_control_socket_gone(pool->control_socket);
        gp_status status = GP_OK;

        if (gone && !pool_missed(pool))
            return GP_OK;
        if (left == 0)
            return gp_fail(err, GP_ETIMEDOUT,
                           "pool %s did not shut down within %d ms; the scheduler's log is %s",
                           pool->paths.pool, timeout_ms, pool->paths.scheduler_log);
        if (gone) /* the scheduler failed before it had stopped the workers: ask the next */
            status = gp_pool_shutdown(pool, false, err);
        if (status != GP_OK)
            return status;
        poll(&control_socket, gone ? 0 : 1, gone ? 0 : 50);
    }
}

void pool_end_owned(gp_pool *pool)
{
    gp_timeout timeout = gp_timeout_in(POOL_GONE_MS);
    struct pollfd scheduler = { .fd = (int)syscall(SYS_pidfd_open, (pid_t)pool->scheduler_pid, 0),
                                .events = POLLIN };

    if (gp_pool_shutdown(pool, false, NULL) == GP_OK && pool_wait_gone(pool, POOL_GONE_MS, NULL) == GP_OK)
        while (scheduler.fd >= 0 && gp_timeout_left(timeout) > 0 &&
               poll(&scheduler, 1, gp_timeout_slice(timeout)) <= 0)
            ;
    if (scheduler.fd >= 0)
        close(scheduler.fd);
}

const char *gp_pool_name(const gp_pool *pool)
{
    return pool->remote != NULL ? pool->remote->endpoint : pool->paths.pool;
}

static const char *const device_names[] = { "none", "cpu", "cuda" };

/* Write the resources of a worker as an object with one number per name. */
static void status_write_resources(gp_json_writer *writer, const gp_slot *slot)
{
    gp_resource_table table = { .count = 0 };

    gp_resources_parse(&table, slot->resources, NULL);
    gp_json_begin_object(writer, "resources");
    for (uint32_t i = 0; i < table.count; i++)
        gp_json_put_integer(writer, table.at[i].name, (int64_t)table.at[i].amount);
    gp_json_end_object(writer);
}

static void status_write_worker(gp_json_writer *writer, const gp_worker_row *row)
{
    char host[65] = "";

    gethostname(host, sizeof(host) - 1);
    gp_json_begin_object(writer, NULL);
    gp_json_put_integer(writer, "index", row->slot.index);
    gp_json_put_integer(writer, "pid", row->slot.pid);
    gp_json_put_text(writer, "host", host);
    gp_json_put_text(writer, "state", pool_worker_word(row));
    gp_json_begin_object(writer, "device");
    gp_json_put_text(writer, "kind", device_names[row->slot.device_kind]);
    gp_json_put_integer(writer, "index", row->slot.device_index);
    gp_json_put_text(writer, "uuid", row->slot.device_uuid);
    gp_json_put_text(writer, "name", row->slot.device_name);
    gp_json_end_object(writer);
    gp_json_put_text(writer, "cores", row->slot.cores);
    gp_json_put_bool(writer, "shared", row->slot.shared);
    status_write_resources(writer, &row->slot);
    gp_json_put_text(writer, "reason", row->reason);
    gp_json_put_integer(writer, "lease", (int64_t)row->lease);
    gp_json_put_integer(writer, "step", (int64_t)row->step);
    gp_json_put_number(writer, "silent_seconds", (double)row->silent_ms * 1e-3);
    gp_json_begin_object(writer, "counters");
#define GP_COUNTER(name) gp_json_put_integer(writer, #name, (int64_t)row->name);
#include "proto/message/worker_counters.def"
    gp_json_end_object(writer);
    gp_json_put_text(writer, "log", row->slot.log);
    gp_json_end_object(writer);
}

gp_status pool_status_write(const gp_status_reply *status, const gp_jobs_reply *jobs, gp_buffer *out,
                            gp_error *err)
{
    gp_json_writer writer;

    gp_json_writer_init(&writer, out, true);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "pool", status->pool);
    gp_json_begin_object(&writer, "scheduler");
    gp_json_put_integer(&writer, "pid", status->scheduler_pid);
    gp_json_put_integer(&writer, "epoch", (int64_t)status->epoch);
    gp_json_put_integer(&writer, "uptime_ms", (int64_t)status->uptime_ms);
    gp_json_put_integer(&writer, "idle_timeout_ms", (int64_t)status->idle_timeout_ms);
    gp_json_put_bool(&writer, "accepting", status->accepting);
    gp_json_begin_object(&writer, "counters");
#define GP_COUNTER(name) gp_json_put_integer(&writer, #name, (int64_t)status->name);
#include "proto/message/pool_counters.def"
    gp_json_end_object(&writer);
    gp_json_end_object(&writer);
    if (status->listen[0] == '\0') {
        gp_json_put_null(&writer, "remote");
    } else {
        gp_json_begin_object(&writer, "remote");
        gp_json_put_text(&writer, "listen", status->listen);
        gp_json_put_integer(&writer, "connections", status->remote_links);
        gp_json_put_integer(&writer, "refused", (int64_t)status->remote_refused);
        gp_json_put_integer(&writer, "cut_off", (int64_t)status->remote_cut);
        gp_json_end_object(&writer);
    }
    gp_json_begin_array(&writer, "workers");
    for (uint32_t i = 0; i < status->workers_count; i++)
        status_write_worker(&writer, &status->workers[i]);
    gp_json_end_array(&writer);
    gp_json_begin_array(&writer, "leases");
    for (uint32_t i = 0; i < status->leases_count; i++) {
        const gp_lease_row *lease = &status->leases[i];

        gp_json_begin_object(&writer, NULL);
        gp_json_put_integer(&writer, "lease", (int64_t)lease->lease);
        gp_json_put_text(&writer, "state", lease->state == GP_LEASE_GRANTED ? "granted" : "queued");
        gp_json_put_text(&writer, "purpose", lease->purpose);
        gp_json_put_integer(&writer, "client_pid", lease->client_pid);
        gp_json_put_integer(&writer, "workers", lease->workers);
        gp_json_put_integer(&writer, "age_ms", (int64_t)lease->age_ms);
        gp_json_end_object(&writer);
    }
    gp_json_end_array(&writer);
    gp_json_begin_array(&writer, "jobs");
    for (uint32_t i = 0; jobs != NULL && i < jobs->rows_count; i++) {
        gp_job_info info;

        pool_job_info(&info, &jobs->rows[i]);
        pool_job_write(&writer, &info);
    }
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, err);
}

gp_status gp_pool_status_json(gp_pool *pool, char **json, gp_error *err)
{
    gp_status_reply *reply = NULL;
    gp_jobs_reply *jobs = NULL;
    gp_buffer buffer;
    size_t bytes;
    gp_status status = pool_status(pool, &reply, err);

    if (status == GP_OK)
        status = pool_jobs_glance(pool, POOL_JOBS_UNFINISHED, GP_JOB_ROWS_MAX, &jobs, err);
    if (status != GP_OK) {
        gp_free(reply);
        return status;
    }
    gp_buffer_init(&buffer, GP_JSON_BYTES_MAX);
    status = pool_status_write(reply, jobs, &buffer, err);
    gp_free(reply);
    gp_free(jobs);
    if (status == GP_OK)
        *json = (char *)gp_buffer_take(&buffer, &bytes);
    gp_buffer_deinit(&buffer);
    return status;
}
