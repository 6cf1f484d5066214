/* Live table of a sweep; sweep_live.h describes the interface. */
#include "client/cli/sweep/sweep_live.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/sweep/sweep_table.h"
#include "common/base/memory/alloc.h"

enum { REDRAW_MS = 200, NOTE_MS = 10000, NOTE_BYTES = 300, FRAME_LINES = 3 };

struct sweep_live {
    FILE *file;
    const sweep_plan *plan;
    gp_space *space;
    double *begin_ms, *seconds; /* by trial: when it began, NaN: not seen running; its time */
    int64_t first_ms, drawn_ms; /* first and last call of sweep_live_draw(); 0: none */
    double first_progress;      /* at the first call */
    int lines;                  /* height on the terminal; 0: nothing is drawn */
    uint32_t width;             /* of the terminal when the table was drawn */
    char note[NOTE_BYTES];
    int64_t note_until_ms;
};

gp_status sweep_live_new(sweep_live **out, FILE *file, const sweep_plan *plan, gp_error *err)
{
    sweep_live *live = gp_calloc(1, sizeof(*live));
    gp_status status = live != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for a table");

    if (status == GP_OK) {
        live->file = file;
        live->plan = plan;
        live->begin_ms = gp_calloc(SWEEP_TRIALS_MAX, sizeof(double));
        live->seconds = gp_calloc(SWEEP_TRIALS_MAX, sizeof(double));
        if (live->begin_ms == NULL || live->seconds == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for a table");
    }
    for (uint32_t i = 0; status == GP_OK && i < SWEEP_TRIALS_MAX; i++)
        live->begin_ms[i] = live->seconds[i] = NAN;
    if (status == GP_OK)
        status = sweep_points_space(&live->space, plan, err);
    if (status == GP_OK)
        *out = live;
    else
        sweep_live_free(live);
    return status;
}

static void erase(sweep_live *live)
{
    if (live->lines > 0)
        fprintf(live->file, "\r\033[%dA\033[J", live->lines);
    live->lines = 0;
}

void sweep_live_free(sweep_live *live)
{
    if (live == NULL)
        return;
    if (live->file != NULL) {
        erase(live);
        fflush(live->file);
    }
    gp_space_free(live->space);
    gp_free(live->begin_ms);
    gp_free(live->seconds);
    gp_free(live);
}

/* ---- times ---- */

static bool runs(const sweep_trial *trial)
{
    return trial->state == SWEEP_RUNNING || trial->state == SWEEP_STOPPING;
}

/* Return the number of trials that have ended, with a fraction for those that run. */
static double progress(const sweep_live *live, const sweep *core)
{
    double sum = 0;

    for (uint32_t i = 1; i <= sweep_count(core); i++) {
        const sweep_trial *trial = sweep_find(core, i);

        if (trial->state >= SWEEP_DONE)
            sum += 1;
        else if (live->plan->epochs_max > 0)
            sum += fmin(1, (double)trial->epoch / live->plan->epochs_max);
    }
    return sum;
}

/* Return how many trials the sweep will have in total. */
static uint32_t planned(const sweep_live *live, const sweep *core)
{
    const uint64_t points = gp_space_points(live->space, SWEEP_TRIALS_MAX);
    const uint32_t trials = points < live->plan->trials ? (uint32_t)points : live->plan->trials;

    return trials > sweep_count(core) ? trials : sweep_count(core);
}

double sweep_live_seconds_left(const sweep_live *live, const sweep *core, int64_t now_ms)
{
    const double now = progress(live, core), made = now - live->first_progress,
                 seconds = (double)(now_ms - live->first_ms) * 1e-3;

    /* An estimate needs the work of at least one trial: the first trials start together. */
    return made >= 1 && seconds > 0 ? (planned(live, core) - now) / made * seconds : NAN;
}

static void update_times(sweep_live *live, const sweep *core, int64_t now_ms)
{
    for (uint32_t i = 1; i <= sweep_count(core); i++) {
        const sweep_trial *trial = sweep_find(core, i);
        double *begin = &live->begin_ms[i - 1];

        if (runs(trial) && isnan(*begin))
            *begin = (double)now_ms;
        if (!isnan(*begin))
            live->seconds[i - 1] = ((double)now_ms - *begin) * 1e-3;
        if (trial->state >= SWEEP_DONE)
            *begin = NAN; /* the time is final */
    }
}

/* ---- drawing ---- */

static void write_counts(const sweep_live *live, const sweep *core, int64_t now_ms, FILE *out)
{
    const double left = sweep_live_seconds_left(live, core, now_ms);
    const uint32_t best = sweep_best(core);
    uint32_t counts[SWEEP_STATES] = { 0 }, ended, running;
    char text[40], value[SWEEP_VALUE_BYTES];

    for (uint32_t i = 1; i <= sweep_count(core); i++)
        counts[sweep_find(core, i)->state]++;
    running = counts[SWEEP_RUNNING] + counts[SWEEP_STOPPING];
    ended = counts[SWEEP_DONE] + counts[SWEEP_STOPPED] + counts[SWEEP_FAILED] + counts[SWEEP_LOST];
    fprintf(out, "%" PRIu32 " of %" PRIu32 " trials", ended, planned(live, core));
    if (best > 0)
        fprintf(out, "; best %s", sweep_objective_text(live->plan, sweep_find(core, best)->value, value));
    if (!isnan(left))
        fprintf(out, "; about %s left", cli_duration(left, text, sizeof(text)));
    fprintf(out, "; %" PRIu32 " running, %" PRIu32 " done", running, counts[SWEEP_DONE]);
    if (counts[SWEEP_STOPPED] > 0)
        fprintf(out, ", %" PRIu32 " stopped", counts[SWEEP_STOPPED]);
    if (counts[SWEEP_FAILED] + counts[SWEEP_LOST] > 0)
        fprintf(out, ", %" PRIu32 " failed", counts[SWEEP_FAILED] + counts[SWEEP_LOST]);
    fputc('\n', out);
}

/* Write text to the terminal: as many lines as fit, each cut to the width. */
static void put_lines(sweep_live *live, const char *text, uint32_t width, uint32_t height)
{
    for (; *text != '\0' && (uint32_t)live->lines + 1 < height; live->lines++) {
        fprintf(live->file, "%.*s\033[K\n", (int)show_cut(text, width), text);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
}

void sweep_live_note(sweep_live *live, const char *text, int64_t now_ms)
{
    show_clean(live->note, sizeof(live->note), text);
    live->note_until_ms = now_ms + NOTE_MS;
    live->drawn_ms = 0;
}

void sweep_live_draw(sweep_live *live, const sweep *core, int64_t now_ms)
{
    sweep_table shown = { .core = core, .plan = live->plan, .space = live->space, .seconds = live->seconds };
    show_table *table;
    uint32_t width, height;
    char *text = NULL;
    size_t bytes;
    FILE *memory;

    if (live->first_ms == 0) {
        live->first_ms = now_ms;
        live->first_progress = progress(live, core);
    }
    update_times(live, core, now_ms);
    if (live->drawn_ms != 0 && now_ms - live->drawn_ms < REDRAW_MS)
        return;
    live->drawn_ms = now_ms;
    memory = open_memstream(&text, &bytes);
    if (memory == NULL)
        return;
    show_terminal_size(live->file, &width, &height);
    shown.running_first = true;
    shown.rows = height > FRAME_LINES + 2 ? height - FRAME_LINES - 1 : 1;
    table = sweep_table_new(&shown);
    show_table_write(table, memory);
    show_table_free(table);
    write_counts(live, core, now_ms, memory);
    if (now_ms < live->note_until_ms)
        fprintf(memory, "%s\n", live->note);
    fclose(memory);
    /* After a resize lines may have wrapped, and the start of the table is unknown: clear all. */
    if (live->lines > 0 && width != live->width)
        fputs("\033[2J\033[H", live->file);
    else if (live->lines > 0)
        fprintf(live->file, "\r\033[%dA", live->lines);
    live->lines = 0;
    live->width = width;
    put_lines(live, text, width, height);
    fputs("\033[J", live->file);
    fflush(live->file);
    free(text);
}
