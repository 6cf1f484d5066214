#include "client/runs/worker_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/runs/metrics_line.h"
#include "client/runs/run_reader.h"
#include "client/runs/run_trim.h"
#include "common/base/memory/alloc.h"

enum { WORKERS_MAX = 256, INTERVAL_MS = 1000, MAGIC = 0x47505751, SLOW_STEPS_MIN = 20 };

/* Sums of one worker over consecutive steps; also the format of workers.open. */
typedef struct interval {
    uint32_t magic, worker; /* magic: MAGIC if `steps` is not 0 */
    uint64_t epoch;
    uint64_t first_step, step, steps, samples;
    uint64_t memory_bytes, cpu_ms; /* memory_bytes 0: unknown */
    double seconds, ms[STEP_PHASES];
} interval;

struct worker_lines {
    char folder[600];
    FILE *file;
    int open_fd; /* workers.open: the interval of worker i at i * sizeof(interval) */
    interval open[WORKERS_MAX + 1];
    interval totals[WORKERS_MAX + 1];  /* all steps of this process */
    int64_t begin_ms[WORKERS_MAX + 1]; /* first step of the interval */
    uint64_t cpu_ms[WORKERS_MAX + 1];  /* of the processes when they were last measured; 0: never */
    uint64_t last[WORKERS_MAX + 1];    /* last step; after a restart, workers repeat earlier steps */
    uint64_t lost;
    int problem;
    bool torn; /* the file may end within a line */
};

static void write_line(worker_lines *lines, const interval *i)
{
    if (lines->file == NULL) { /* worker_lines_resume() could not open it again */
        lines->lost++;
        return;
    }
    if (lines->torn)
        fputc('\n', lines->file);
    if (fprintf(lines->file,
                "{\"worker\": %" PRIu32 ", \"seconds\": %.6f, \"first_step\": %" PRIu64 ", \"step\": %" PRIu64
                ", \"steps\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"time\": {",
                i->worker, i->seconds, i->first_step, i->step, i->steps, i->samples) > 0)
        for (int phase = 0; phase < STEP_PHASES; phase++)
            fprintf(lines->file, "%s\"%s\": %.4f", phase == 0 ? "" : ", ", step_phase_names[phase],
                    i->ms[phase]);
    fputc('}', lines->file);
    if (i->memory_bytes != 0)
        fprintf(lines->file, ", \"memory_bytes\": %" PRIu64 ", \"cpu_ms\": %" PRIu64, i->memory_bytes,
                i->cpu_ms);
    fputs("}\n", lines->file);
    lines->torn = fflush(lines->file) != 0 || ferror(lines->file);
    if (!lines->torn)
        return;
    lines->lost++;
    lines->problem = errno;
    clearerr(lines->file);
}

/* Update the interval in workers.open. Errors are ignored: the file only matters after a kill. */
static void store(const worker_lines *lines, uint32_t worker)
{
    const interval *i = &lines->open[worker];

    if (pwrite(lines->open_fd, i, sizeof(*i), (off_t)(worker * sizeof(*i))) < 0)
        return;
}

/* Write the interval of a worker and begin a new one. */
static void finish(worker_lines *lines, uint32_t worker)
{
    if (lines->open[worker].steps > 0)
        write_line(lines, &lines->open[worker]);
    lines->open[worker] = (interval){ 0 };
    store(lines, worker);
}

static gp_status open_file(worker_lines *lines, gp_error *err)
{
    char path[700];

    snprintf(path, sizeof(path), "%s/workers.jsonl", lines->folder);
    lines->torn = run_is_torn(path);
    lines->file = fopen(path, "ae");
    return lines->file != NULL ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot write %s", path);
}

/* Read an interval from a line. false: malformed. */
static bool interval_get(interval *out, const gp_json *json)
{
    const gp_json *time = gp_json_member(json, "time");
    const int64_t worker = gp_json_integer(gp_json_member(json, "worker"), -1),
                  first = gp_json_integer(gp_json_member(json, "first_step"), 0),
                  step = gp_json_integer(gp_json_member(json, "step"), 0),
                  steps = gp_json_integer(gp_json_member(json, "steps"), 0),
                  samples = gp_json_integer(gp_json_member(json, "samples"), 0);

    if (worker < 0 || worker > WORKERS_MAX || first <= 0 || step < first || steps <= 0 || samples < 0)
        return false;
    *out = (interval){ .worker = (uint32_t)worker,
                       .first_step = (uint64_t)first,
                       .step = (uint64_t)step,
                       .steps = (uint64_t)steps,
                       .samples = (uint64_t)samples,
                       .memory_bytes = run_count(json, "memory_bytes"),
                       .cpu_ms = run_count(json, "cpu_ms"),
                       .seconds = gp_json_number(gp_json_member(json, "seconds"), 0) };
    for (int phase = 0; phase < STEP_PHASES; phase++)
        out->ms[phase] = gp_json_number(gp_json_member(time, step_phase_names[phase]), 0);
    return true;
}

/* Drop the stored intervals that are in the file: a process may be killed after it wrote a line and
 * before it cleared the interval. */
static void drop_written(worker_lines *lines)
{
    run_lines *old = run_lines_new(lines->folder, "workers.jsonl");
    const char *text;
    size_t bytes;

    while (old != NULL && (text = run_lines_next(old, &bytes)) != NULL) {
        interval i;
        run_line line;

        if (!run_line_parse(&line, text, bytes))
            continue;
        if (interval_get(&i, line.json) && i.step >= lines->open[i.worker].first_step)
            lines->open[i.worker] = (interval){ 0 };
        run_line_deinit(&line);
    }
    run_lines_free(old);
}

/* Write the intervals that a killed process stored. */
static void restore(worker_lines *lines)
{
    bool any = false;

    if (pread(lines->open_fd, lines->open, sizeof(lines->open), 0) < 0)
        memset(lines->open, 0, sizeof(lines->open));
    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++) {
        interval *i = &lines->open[worker];

        if (i->steps == 0 || i->magic != MAGIC || i->worker != worker)
            *i = (interval){ 0 };
        any |= i->steps > 0;
    }
    if (any)
        drop_written(lines);
    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++)
        if (lines->open[worker].steps > 0)
            finish(lines, worker);
}

gp_status worker_lines_open(worker_lines **out, const char *folder, gp_error *err)
{
    worker_lines *lines = gp_calloc(1, sizeof(*lines));
    char path[700];
    gp_status status;

    *out = NULL;
    if (lines == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the records of the workers");
    snprintf(lines->folder, sizeof(lines->folder), "%s", folder);
    snprintf(path, sizeof(path), "%s/workers.open", folder);
    lines->open_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    status =
        lines->open_fd >= 0 ? open_file(lines, err) : gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (status != GP_OK) {
        if (lines->open_fd >= 0)
            close(lines->open_fd);
        gp_free(lines);
        return status;
    }
    restore(lines);
    *out = lines;
    return GP_OK;
}

/* ---- resume ---- */

/* Reduce an interval that contains `step` to the steps up to `step`. Its time ends earlier by the
 * time of the other steps. */
static void interval_cut(interval *i, uint64_t step)
{
    const double part = (double)(step - i->first_step + 1) / (double)(i->step - i->first_step + 1);

    for (int phase = 0; phase < STEP_PHASES; phase++)
        i->seconds -= i->ms[phase] * (1 - part) * 1e-3;
    i->steps = (uint64_t)((double)i->steps * part + 0.5);
    i->samples = (uint64_t)((double)i->samples * part + 0.5);
    i->cpu_ms = (uint64_t)((double)i->cpu_ms * part + 0.5);
    for (int phase = 0; phase < STEP_PHASES; phase++)
        i->ms[phase] *= part;
    i->step = step;
}

/* The intervals that contain `step` are stored in workers.open before the lines are removed, so
 * that the next attempt finds them if this process is killed in between. */
gp_status worker_lines_resume(worker_lines *lines, uint64_t step, gp_error *err)
{
    run_lines *old = run_lines_new(lines->folder, "workers.jsonl");
    const char *text;
    size_t bytes;
    gp_status status;

    if (old == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to read the records of the workers");
    while ((text = run_lines_next(old, &bytes)) != NULL) {
        interval i;
        run_line line;

        if (!run_line_parse(&line, text, bytes))
            continue;
        if (interval_get(&i, line.json) && i.first_step <= step && i.step > step) {
            interval_cut(&i, step);
            i.magic = MAGIC;
            lines->open[i.worker] = i;
            store(lines, i.worker);
        }
        run_line_deinit(&line);
    }
    status = run_lines_failed(old) ? gp_fail(err, GP_EIO, "cannot read workers.jsonl of %s", lines->folder)
                                   : run_trim(lines->folder, "workers.jsonl", step, step, NULL, err);
    run_lines_free(old);
    if (status == GP_OK) {
        fclose(lines->file); /* the old file */
        status = open_file(lines, err);
    }
    if (lines->file == NULL) {
        lines->problem = errno;
        return status;
    }
    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++) {
        if (status != GP_OK) /* the file still has the whole interval */
            lines->open[worker].steps = 0;
        if (lines->open[worker].magic == MAGIC)
            finish(lines, worker);
    }
    return status;
}

/* ---- steps ---- */

void worker_lines_add(worker_lines *lines, const gp_train_step *step, int64_t now_ms)
{
    interval *i;

    if (step->worker > WORKERS_MAX || step->step <= lines->last[step->worker])
        return;
    lines->last[step->worker] = step->step;
    i = &lines->open[step->worker];
    if (i->steps > 0 && i->epoch != step->epoch)
        finish(lines, step->worker);
    if (i->steps == 0) {
        i->magic = MAGIC;
        i->worker = step->worker;
        i->epoch = step->epoch;
        i->first_step = step->step;
        lines->begin_ms[step->worker] = now_ms;
    }
    i->step = step->step;
    i->steps++;
    i->samples += step->samples;
    i->seconds = step->seconds;
    lines->totals[step->worker].steps++;
    step_phases_add(i->ms, step);
    step_phases_add(lines->totals[step->worker].ms, step);
    if (now_ms - lines->begin_ms[step->worker] >= INTERVAL_MS)
        finish(lines, step->worker);
    else
        store(lines, step->worker);
}

void worker_lines_usage(worker_lines *lines, uint32_t worker, uint64_t cpu_ms_total, uint64_t memory_bytes)
{
    if (worker > WORKERS_MAX || memory_bytes == 0)
        return;
    interval *i = &lines->open[worker];
    uint64_t *before = &lines->cpu_ms[worker];

    if (*before != 0 && cpu_ms_total > *before) /* the time of a new process begins at 0 */
        i->cpu_ms += cpu_ms_total - *before;
    *before = cpu_ms_total;
    i->memory_bytes = memory_bytes;
}

/* Return the time of a worker per step, without waiting for others. */
static double step_ms(const interval *total)
{
    double ms = 0;

    for (int phase = 0; phase < STEP_PHASES; phase++)
        ms += phase == STEP_PHASE_wait_ms ? 0 : total->ms[phase];
    return ms / (double)total->steps;
}

bool worker_lines_slowest(const worker_lines *lines, char *text, size_t bytes)
{
    const interval *slowest = NULL;
    double others[STEP_PHASES] = { 0 }, others_ms = 0;
    uint32_t count = 0;
    int cause = 0;

    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++) {
        const interval *total = &lines->totals[worker];

        if (total->steps < SLOW_STEPS_MIN)
            continue;
        count++;
        if (slowest == NULL || step_ms(total) > step_ms(slowest))
            slowest = total;
    }
    if (count < 2)
        return false;
    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++) {
        const interval *total = &lines->totals[worker];

        if (total->steps < SLOW_STEPS_MIN || total == slowest)
            continue;
        others_ms += step_ms(total) / (count - 1);
        for (int phase = 0; phase < STEP_PHASES; phase++)
            others[phase] += total->ms[phase] / (double)total->steps / (count - 1);
    }
    for (int phase = 1; phase < STEP_PHASES; phase++)
        if (phase != STEP_PHASE_wait_ms && slowest->ms[phase] / (double)slowest->steps - others[phase] >
                                               slowest->ms[cause] / (double)slowest->steps - others[cause])
            cause = phase;
    snprintf(text, bytes,
             "worker %d was the slowest: %.1f ms per step, others %.1f ms; the difference is largest in %s",
             (int)(slowest - lines->totals), step_ms(slowest), others_ms, step_phase_names[cause]);
    return step_ms(slowest) > 1.1 * others_ms;
}

uint64_t worker_lines_close(worker_lines *lines, int *problem)
{
    char path[700];
    uint64_t lost;

    if (lines == NULL)
        return 0;
    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++)
        if (lines->open[worker].steps > 0)
            finish(lines, worker);
    if (lines->file != NULL && fclose(lines->file) != 0) {
        lines->lost++;
        lines->problem = errno;
    }
    close(lines->open_fd);
    snprintf(path, sizeof(path), "%s/workers.open", lines->folder);
    unlink(path);
    lost = lines->lost;
    if (lost > 0)
        *problem = lines->problem;
    gp_free(lines);
    return lost;
}
