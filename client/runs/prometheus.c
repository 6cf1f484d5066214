#include "client/runs/prometheus.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "client/runs/metrics_line.h"

typedef enum family_type { COUNTER, GAUGE, HISTOGRAM } family_type;

/* The text under construction. */
typedef struct writer {
    gp_buffer *out;
    gp_status status; /* first error */
    gp_error error;
    const gp_status_reply *pool;
    const gp_jobs_reply *jobs;
    const char *version;
    const char *family; /* name of the family that is written */
} writer;

/* Append one sample.
 *   suffix  follows the name of the family
 *   labels  "worker=\"1\"", or "" */
static void put(writer *w, const char *suffix, const char *labels, double value)
{
    if (w->status == GP_OK)
        w->status =
            gp_buffer_printf(w->out, &w->error, "%s%s%s%s%s %.15g\n", w->family, suffix,
                             labels[0] == '\0' ? "" : "{", labels, labels[0] == '\0' ? "" : "}", value);
}

/* Append a sample with one label. */
static void put_label(writer *w, const char *name, const char *value, double number)
{
    char labels[160];

    snprintf(labels, sizeof(labels), "%s=\"%s\"", name, value);
    put(w, "", labels, number);
}

static void put_worker(writer *w, uint32_t index, double number)
{
    char text[16];

    snprintf(text, sizeof(text), "%" PRIu32, index);
    put_label(w, "worker", text, number);
}

/* ---- families ---- */

static void write_build(writer *w)
{
    const char *blank = strrchr(w->version, ' '); /* "gradpool 0.1.0" */

    put_label(w, "version", blank != NULL ? blank + 1 : w->version, 1);
}

static void write_workers(writer *w)
{
    static const char *const words[] = { "starting", "idle", "busy", "excluded", "dead" };
    const gp_worker_state states = sizeof(words) / sizeof(words[0]);

    for (gp_worker_state state = 0; state < states; state++) {
        uint32_t count = 0;

        for (uint32_t i = 0; i < w->pool->workers_count; i++)
            count += w->pool->workers[i].state == state;
        put_label(w, "state", words[state], count);
    }
}

static void write_up(writer *w)
{
    for (uint32_t i = 0; i < w->pool->workers_count; i++) {
        const gp_worker_row *row = &w->pool->workers[i];

        put_worker(w, row->slot.index, row->state == GP_WORKER_IDLE || row->state == GP_WORKER_BUSY);
    }
}

/* Write a counter of each worker. A worker from which the scheduler has received no heartbeat is
 * left out: for Prometheus, a counter that falls to 0 is a restart.
 *   offset  that of a uint64_t in gp_worker_row */
static void write_counters(writer *w, size_t offset, double scale)
{
    for (uint32_t i = 0; i < w->pool->workers_count; i++) {
        const gp_worker_row *row = &w->pool->workers[i];
        const uint64_t value = *(const uint64_t *)((const char *)row + offset);

        if (row->memory_bytes != 0 || value != 0)
            put_worker(w, row->slot.index, (double)value * scale);
    }
}

static void write_phases(writer *w)
{
    for (uint32_t i = 0; i < w->pool->workers_count; i++) {
        const gp_worker_row *row = &w->pool->workers[i];
        const uint64_t us[STEP_PHASES] = {
            [STEP_PHASE_data_ms] = row->data_us_total,
            [STEP_PHASE_forward_ms] = row->forward_us_total,
            [STEP_PHASE_backward_ms] = row->backward_us_total,
            [STEP_PHASE_exchange_ms] = row->exchange_us_total,
            [STEP_PHASE_commit_ms] = row->commit_us_total,
            [STEP_PHASE_wait_ms] = row->wait_us_total,
        };

        for (int phase = 0; phase < STEP_PHASES && row->memory_bytes != 0; phase++) {
            char labels[64];

            snprintf(labels, sizeof(labels), "worker=\"%" PRIu32 "\",phase=\"%s\"", row->slot.index,
                     step_phase_names[phase]);
            put(w, "", labels, (double)us[phase] * 1e-6);
        }
    }
}

static void write_leases(writer *w)
{
    uint32_t granted = 0;

    for (uint32_t i = 0; i < w->pool->leases_count; i++)
        granted += w->pool->leases[i].state == GP_LEASE_GRANTED;
    put_label(w, "state", "granted", granted);
    put_label(w, "state", "waiting", w->pool->leases_count - granted);
}

static void write_waits(writer *w)
{
    const gp_status_reply *p = w->pool;
    const struct {
        const char *le;
        uint64_t count;
    } buckets[] = { { "0.01", p->waits_10ms_total }, { "0.1", p->waits_100ms_total },
                    { "1.0", p->waits_1s_total },    { "10.0", p->waits_10s_total },
                    { "60.0", p->waits_1min_total }, { "600.0", p->waits_10min_total },
                    { "3600.0", p->waits_1h_total }, { "+Inf", p->grants_total } };

    for (size_t i = 0; i < sizeof(buckets) / sizeof(buckets[0]); i++) {
        char labels[32];

        snprintf(labels, sizeof(labels), "le=\"%s\"", buckets[i].le);
        put(w, "_bucket", labels, (double)buckets[i].count);
    }
    put(w, "_sum", "", (double)p->wait_ms_total * 1e-3);
    put(w, "_count", "", (double)p->grants_total);
}

static void write_journal(writer *w)
{
    put(w, "", "", w->jobs != NULL);
}

static void write_jobs(writer *w)
{
    if (w->jobs == NULL)
        return;
    put_label(w, "state", "queued", w->jobs->queued);
    put_label(w, "state", "running", w->jobs->running);
    put_label(w, "state", "done", w->jobs->done);
    put_label(w, "state", "failed", w->jobs->failed);
    put_label(w, "state", "canceled", w->jobs->canceled);
    put_label(w, "state", "lost", w->jobs->lost);
}

/* What the last column of the table means. */
#define build()               write_build(w)
#define workers()             write_workers(w)
#define up()                  write_up(w)
#define phases()              write_phases(w)
#define leases()              write_leases(w)
#define waits()               write_waits(w)
#define journal()             write_journal(w)
#define jobs()                write_jobs(w)
#define pool(member, scale)   put(w, "", "", (double)w->pool->member *(scale))
#define worker(member, scale) write_counters(w, offsetof(gp_worker_row, member), scale)

/* Append the lines before the samples of a family. */
static void begin(writer *w, const char *name, family_type type, const char *help, bool open_metrics)
{
    static const char *const types[] = { "counter", "gauge", "histogram" };
    const size_t bytes = strlen(name) - (open_metrics && type == COUNTER ? strlen("_total") : 0);

    w->family = name;
    if (w->status == GP_OK)
        w->status = gp_buffer_printf(w->out, &w->error, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)bytes, name,
                                     help, (int)bytes, name, types[type]);
}

gp_status prometheus_write(gp_buffer *out, const gp_status_reply *status, const gp_jobs_reply *job_totals,
                           const char *version, bool open_metrics, gp_error *err)
{
    writer text = { .out = out, .pool = status, .jobs = job_totals, .version = version }, *w = &text;

#define GP_FAMILY(name, type, labels, help, write)                                                           \
    begin(w, #name, type, help, open_metrics);                                                               \
    write;
#include "client/runs/prometheus.def"
    if (open_metrics && w->status == GP_OK)
        w->status = gp_buffer_printf(out, &w->error, "# EOF\n");
    if (w->status != GP_OK && err != NULL)
        *err = w->error;
    return w->status;
}
