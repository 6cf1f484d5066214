/* Progress display of a training: a table, or a live picture redrawn in place on a terminal. view.h
 * describes both. The file stays whole: table and picture show the same state. */
#include "client/cli/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

enum {
    POINTS = 512,        /* segments per curve, at any terminal width */
    FIRST_VALUES = 5,    /* first values, which may raise the axis top */
    ABOVE_MAX = 20,      /* consecutive smoothed values above the axis before it grows */
    LOG_RANGE = 1000,    /* ratio between the ends of a logarithmic axis */
    LOG_BELOW = 50,      /* the axis becomes logarithmic for values below top / LOG_BELOW */
    SMOOTHED_MIN = 5,    /* minimum smoothing window, in steps */
    SMOOTHED_PARTS = 50, /* smoothing windows in the whole training */
};
enum {
    WORKERS = 64,      /* ranks with timing statistics; higher ranks share entries */
    WORKERS_SHOWN = 8, /* workers with a line of their own in the picture */
    PHASES = 6,        /* phases of a step */
    CURVE_ROWS_MAX = 7,
    WIDTH_MAX = 110,
    REDRAW_MS = 100,    /* minimum interval between redraws */
    PROGRESS_MS = 2000, /* table age after which the progress line appears */
    NOTE_MS = 10000     /* time for which the picture shows a note */
};
enum { LINE_BYTES = WIDTH_MAX * 4, LABEL_COLUMNS = 8, TICKS = 6 };

/* Curve over the whole training, from the first to the last planned step, in POINTS equal
 * segments. */
typedef struct gp_curve {
    struct point {
        double low, high; /* range of raw values; low > high: none */
        double smooth;    /* smoothed value after the last step of the segment; NaN: none */
        double check;     /* validation value; NaN: none */
    } points[POINTS];
    uint64_t values;
    double ema, ema_weight; /* exponential moving average, before division by its weight */
    double top;             /* axis top; the axis begins at 0; set by the first values */
    uint32_t above;         /* consecutive smoothed values above the axis */
    bool percent;           /* axis from 0 to 1, labelled in percent */
    bool log;               /* logarithmic axis, from top / LOG_RANGE */
} gp_curve;

/* Throughput and time statistics for one rank. */
typedef struct gp_rates {
    uint64_t samples;
    double ms[PHASES];     /* milliseconds per phase, summed over the run */
    double seconds;        /* training time at the last step received */
    double window_seconds; /* training time when the rate window started */
    uint64_t window_samples;
    double per_second; /* rate over the last window */
} gp_rates;

/* Characters for drawing: Unicode blocks. */
static const struct {
    const char *raw, *check; /* marks for a raw value and a validation value */
    const char *smooth[4];   /* index: 1: lower half, 2: upper half, 3: both */
    const char *bar[9];      /* progress bar cells, by eighths filled */
    const char *tick, *wall;
} glyphs = { "·", "◆", { " ", "▄", "▀", "█" }, { "·", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█" }, "┤", "│" };
struct gp_view {
    view_options options;
    gp_train_info info;
    gp_train_step last; /* last step of rank 0 */
    gp_train_validation_result check;
    bool checked, headed;
    bool held; /* the `last` table line is delayed until the validation after the same step */
    bool ended;
    gp_curve loss, measure; /* measure: accuracy, or RMSE for regression */
    gp_rates rates[WORKERS];
    uint64_t steps_total;
    int64_t drawn_ms;
    int64_t printed_ms;        /* when the last table line was printed, or the training began */
    bool progress;             /* a progress line is on the terminal */
    int lines;                 /* current picture height; 0: none */
    uint32_t width;            /* terminal width when the picture was drawn */
    char validating[160];      /* progress of a running validation; "": none */
    char sentence[160];        /* message below the picture */
    int64_t sentence_until_ms; /* when the message disappears; 0: never */
};

/* ---- curves ---- */

static void curve_init(gp_curve *curve)
{
    *curve = (gp_curve){ 0 };
    for (uint32_t i = 0; i < POINTS; i++)
        curve->points[i] = (struct point){ .low = INFINITY, .high = -INFINITY, .smooth = NAN, .check = NAN };
}

/* Round up to the next 1, 2, 2.5 or 5 times a power of ten. */
static double round_up(double value)
{
    static const double steps[] = { 1, 2, 2.5, 5, 10 };
    const double power = pow(10, floor(log10(value)));

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (steps[i] * power >= value)
            return steps[i] * power;
    return 10 * power;
}

/* Return the curve segment that contains the step (from 1). */
static struct point *curve_point(gp_curve *curve, uint64_t step, uint64_t steps_total)
{
    const uint64_t at = steps_total == 0 ? 0 : (step == 0 ? 0 : step - 1) * POINTS / steps_total;

    return &curve->points[at < POINTS ? at : POINTS - 1];
}

/* Add the value of a training step. Ignore values that are not finite. */
static void curve_add(gp_curve *curve, uint64_t step, uint64_t steps_total, double value)
{
    const double window = fmax(SMOOTHED_MIN, (double)steps_total / SMOOTHED_PARTS), weight = 2 / (window + 1);
    struct point *point = curve_point(curve, step, steps_total);

    if (!isfinite(value))
        return;
    curve->values++;
    curve->ema += weight * (value - curve->ema);
    curve->ema_weight += weight * (1 - curve->ema_weight);
    point->low = fmin(point->low, value);
    point->high = fmax(point->high, value);
    point->smooth = curve->ema / curve->ema_weight;
    /* Adapt the axis. The first values set the top. Later the axis grows only if the smoothed curve
     * stays above it, and becomes logarithmic once the curve is too low to be visible on a linear
     * axis. */
    if (curve->percent)
        curve->top = 1;
    else if (value > curve->top && curve->values <= FIRST_VALUES)
        curve->top = round_up(value);
    curve->above = point->smooth > curve->top ? curve->above + 1 : 0;
    if (curve->above > ABOVE_MAX)
        curve->top = round_up(point->smooth);
    if (!curve->percent && point->smooth > 0 && point->smooth < curve->top / LOG_BELOW)
        curve->log = true;
}

/* Merge the segments shown in column x of `width` columns. */
static struct point curve_at(const gp_curve *curve, uint32_t x, uint32_t width)
{
    const uint32_t from = x * POINTS / width, to = (x + 1) * POINTS / width;
    struct point all = { .low = INFINITY, .high = -INFINITY, .smooth = NAN, .check = NAN };

    for (uint32_t i = from; i < (to > from ? to : from + 1); i++) {
        const struct point *point = &curve->points[i];

        all.low = fmin(all.low, point->low);
        all.high = fmax(all.high, point->high);
        all.smooth = isnan(point->smooth) ? all.smooth : point->smooth;
        all.check = isnan(point->check) ? all.check : point->check;
    }
    return all;
}

/* ---- table ---- */

/* Return whether the network predicts numbers. Regression has an RMSE instead of an accuracy. */
static bool of_values(double accuracy, double rmse)
{
    return isnan(accuracy) && !isnan(rmse);
}

/* Format the accuracy or RMSE; "": neither is known. */
static const char *measure(double accuracy, double rmse, char text[16])
{
    *text = '\0';
    if (of_values(accuracy, rmse))
        snprintf(text, 16, "%.4g", rmse);
    else if (!isnan(accuracy))
        snprintf(text, 16, "%.2f %%", accuracy * 100);
    return text;
}

/* ---- progress between two lines of the table ---- */

/* Show the current step on a terminal, if the last table line is older than PROGRESS_MS. */
static void progress_show(gp_view *view)
{
    int64_t now_ms = gp_now_ms();
    char time[40];
    double left_s;

    if (!view->options.terminal || now_ms - view->printed_ms < PROGRESS_MS ||
        now_ms - view->drawn_ms < REDRAW_MS)
        return;
    view->drawn_ms = now_ms;
    view->progress = true;
    left_s = view->last.seconds * ((double)view->steps_total / (double)view->last.step - 1);
    fprintf(view->options.out, "\rstep %" PRIu64 " of %" PRIu64 ", %.0f %%, %s left\033[K", view->last.step,
            view->steps_total, floor(100.0 * (double)view->last.step / (double)view->steps_total),
            cli_duration(left_s, time, sizeof(time)));
    fflush(view->options.out);
}

static void progress_clear(gp_view *view)
{
    if (view->progress)
        fputs("\r\033[K", view->options.out);
    view->progress = false;
    view->printed_ms = gp_now_ms();
}

/* Print a table line to the log, and to the output if no picture is drawn there. The table has the
 * form of MATLAB's Verbose output. */
static void table_show(gp_view *view, const gp_train_step *step, const gp_train_validation_result *check)
{
    FILE *outs[] = { view->options.live ? NULL : view->options.out, view->options.log };
    const char *name = of_values(step->accuracy, step->rmse) ? "RMSE" : "accuracy";

    progress_clear(view);
    for (int i = 0; i < 2; i++) {
        if (outs[i] == NULL)
            continue;
        if (!view->headed)
            fprintf(outs[i],
                    "|======================================================================================="
                    "===|\n"
                    "|  Epoch  |  Step  | Time        | Batch    | Validation | Batch   | Validation | "
                    "Learning |\n"
                    "|         |        | h:min:s     | %-8s | %-10s | loss    | loss       | rate     |\n"
                    "|======================================================================================="
                    "===|\n",
                    name, name);

        char time[16], accuracy[16] = "", loss[16] = "", batch[16] = "", batch_loss[16] = "";
        const double seconds = check != NULL ? check->seconds : step->seconds;

        snprintf(time, sizeof(time), "%02d:%02d:%05.2f", (int)(seconds / 3600), (int)(seconds / 60) % 60,
                 fmod(seconds, 60.0));
        if (check != NULL) {
            measure(check->accuracy, check->rmse, accuracy);
            snprintf(loss, sizeof(loss), "%.4f", check->loss);
        }
        measure(step->accuracy, step->rmse, batch);
        if (!isnan(step->loss)) /* NaN: all batch targets were ignored */
            snprintf(batch_loss, sizeof(batch_loss), "%.4f", step->loss);
        fprintf(outs[i], "| %7" PRIu32 " | %6" PRIu64 " | %s | %8s | %10s | %7s | %10s | %8.2g |\n",
                step->epoch, step->step, time, batch, accuracy, batch_loss, loss, step->learn_rate);
        fflush(outs[i]);
    }
    view->headed = true;
    view->held = false;
}

/* ---- picture ---- */

/* Draw one line of the picture, cut to the terminal width. A wrapped line would make the line count
 * wrong, and the next redraw would start at the wrong place. */
__attribute__((format(printf, 3, 4))) static void draw_line(gp_view *view, uint32_t width, const char *format,
                                                            ...)
{
    char line[2 * LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(view->options.out, "%.*s\033[K\n", (int)show_cut(line, width), line);
    view->lines++;
}

/* Draw the progress bar with the epoch and the estimated time left. */
static void draw_bar(gp_view *view, uint32_t width)
{
    double share = view->steps_total == 0 ? 0 : (double)view->last.step / (double)view->steps_total;
    double left = share > 0 ? view->last.seconds * (1 - share) / share : 0;
    uint32_t cells = width > 60 ? width - 42 : width > 50 ? width - 38 : 10;
    uint32_t eighths = (uint32_t)(share * cells * 8);
    char bar[LINE_BYTES] = "", time[40] = "";

    for (uint32_t i = 0; i < cells; i++) {
        uint32_t filled = eighths <= i * 8 ? 0 : eighths - i * 8;

        strcat(bar, glyphs.bar[filled > 8 ? 8 : filled]);
    }
    if (view->last.step >= view->steps_total)
        snprintf(time, sizeof(time), "done");
    else if (view->ended)
        snprintf(time, sizeof(time), "ended");
    else if (left < 60)
        snprintf(time, sizeof(time), "%.0f s left", ceil(left));
    else
        strcat(cli_duration(left, time, sizeof(time) - 8), " left");
    draw_line(view, width, "%s %3.0f %%  epoch %" PRIu32 "/%" PRIu32 "  %s", bar, floor(share * 100),
              view->last.epoch, view->info.epochs, time);
}

/* Convert a value to a height above the axis, in half rows. */
static int height_of(const gp_curve *curve, double value, int rows)
{
    const double share =
        curve->log ? log(fmax(value, 1e-300) * LOG_RANGE / curve->top) / log(LOG_RANGE) : value / curve->top;
    const int height = (int)floor(share * 2 * rows);

    return height < 0 ? 0 : height >= 2 * rows ? 2 * rows - 1 : height;
}

/* Half rows that the smoothed line covers in one column; low > high: none. */
typedef struct line_span {
    int low, high; /* low > high: none */
} line_span;

/* Compute the smoothed line's spans for all columns. Columns without a step are interpolated. Each
 * column reaches up or down to the previous column's height, so the line has no gaps. */
static void draw_smooth(const gp_curve *curve, line_span *spans, uint32_t columns, int rows)
{
    int before = -1;
    uint32_t before_at = 0;

    for (uint32_t x = 0; x < columns; x++)
        spans[x] = (line_span){ 1, 0 };
    for (uint32_t x = 0; x < columns; x++) {
        const double value = curve_at(curve, x, columns).smooth;

        if (isnan(value))
            continue;
        const int height = height_of(curve, value, rows);

        for (uint32_t at = before < 0 ? x : before_at + 1; at <= x; at++) {
            int to = height;

            if (before >= 0)
                to = before +
                     (int)lround((height - before) * (double)(at - before_at) / (double)(x - before_at));
            spans[at] = (line_span){ to, to };
            if (before >= 0 && to > spans[at - 1].high)
                spans[at].low = spans[at - 1].high + 1;
            else if (before >= 0 && to < spans[at - 1].low)
                spans[at].high = spans[at - 1].low - 1;
        }
        before = height;
        before_at = x;
    }
}

/* Choose the character for a cell: validation mark, smoothed line, raw value range, or blank. */
static const char *cell_of(const gp_curve *curve, uint32_t x, uint32_t columns, int row, int rows,
                           const line_span *span)
{
    const struct point at = curve_at(curve, x, columns);

    if (!isnan(at.check) && height_of(curve, at.check, rows) / 2 == row)
        return glyphs.check;
    const int lower = span->low <= 2 * row && 2 * row <= span->high;
    const int upper = span->low <= 2 * row + 1 && 2 * row + 1 <= span->high;

    if (lower || upper)
        return glyphs.smooth[lower + 2 * upper];
    return at.low <= at.high && height_of(curve, at.low, rows) / 2 <= row &&
                   row <= height_of(curve, at.high, rows) / 2
               ? glyphs.raw
               : " ";
}

static uint32_t curve_columns(uint32_t width)
{
    return width > 24 ? width - LABEL_COLUMNS - 2 : 13;
}

/* Draw a curve in `rows` lines. The first and the last line show the axis ends, the second line
 * shows the name. */
static void draw_curve(gp_view *view, const char *name, const gp_curve *curve, uint32_t width, int rows)
{
    const uint32_t columns = curve_columns(width);
    line_span spans[WIDTH_MAX];

    if (curve->values == 0 || rows < 2)
        return;
    draw_smooth(curve, spans, columns, rows);
    for (int row = rows - 1; row >= 0; row--) {
        const bool edge = row == rows - 1 || row == 0;
        const double value = row > 0 ? curve->top : curve->log ? curve->top / LOG_RANGE : 0;
        char line[LINE_BYTES] = "", label[24] = "";

        for (uint32_t x = 0; x < columns; x++)
            strcat(line, cell_of(curve, x, columns, row, rows, &spans[x]));
        if (edge)
            snprintf(label, sizeof(label), curve->percent ? "%.0f %%" : "%.3g",
                     curve->percent ? value * 100 : value);
        else if (row == rows - 2)
            snprintf(label, sizeof(label), "%s%s", name, curve->log ? " log" : "");
        draw_line(view, width, "%*s %s%s", LABEL_COLUMNS, label, edge ? glyphs.tick : glyphs.wall, line);
    }
}

/* Label both x axes with epochs, or with steps if there is only one epoch. */
static void draw_axis(gp_view *view, uint32_t width)
{
    const bool epochs = view->info.epochs > 1;
    const double end = epochs ? view->info.epochs : (double)view->steps_total;
    const double step = fmax(1, round_up(end / TICKS));
    const uint32_t columns = curve_columns(width);
    char line[WIDTH_MAX + 24];

    if (end < 1)
        return;
    memset(line, ' ', sizeof(line));
    for (double tick = 0; tick <= end; tick += ceil(step)) {
        char number[16];
        const int bytes = snprintf(number, sizeof(number), "%.0f", tick);
        const uint32_t at = (uint32_t)(tick / end * (columns - 1));

        memcpy(line + (at + (uint32_t)bytes > columns ? columns - (uint32_t)bytes : at), number,
               (size_t)bytes);
    }
    line[columns] = '\0';
    draw_line(view, width, "%*s  %s", LABEL_COLUMNS, epochs ? "epoch" : "step", line);
}

/* Draw a worker's line: images per second, then the percentage of time per phase, as far as the
 * line has room. */
static void draw_worker(gp_view *view, uint32_t rank, uint32_t width)
{
    static const char *const phases[PHASES] = { "forward", "backward", "wait", "exchange", "commit", "data" };
    const gp_rates *r = &view->rates[rank];
    double sum = 1e-12;
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof(line), "worker %-3" PRIu32 "%8.0f images/s ",
                        view->info.worker_index[rank], r->per_second);

    for (int i = 0; i < PHASES; i++)
        sum += r->ms[i];
    for (int i = 0; i < PHASES; i++) {
        char part[40];
        int bytes = snprintf(part, sizeof(part), "  %s %2.0f %%", phases[i], 100 * r->ms[i] / sum);

        if ((uint32_t)(used + bytes) > width)
            break;
        used += snprintf(line + used, sizeof(line) - (size_t)used, "%s", part);
    }
    draw_line(view, width, "%s", line);
}

/* Draw the lines with the current step and the latest validation. */
static void draw_info(gp_view *view, uint32_t width)
{
    const char *name = of_values(view->last.accuracy, view->last.rmse) ? "RMSE" : "accuracy";
    char last[16], check[16];

    draw_line(view, width,
              width < 72 ? "step %" PRIu64 "/%" PRIu64 "  loss %.4f  %s %s  rate %.3g"
                         : "step %" PRIu64 "/%" PRIu64 "   loss %.4f   batch %s %s   learning rate %.3g",
              view->last.step, view->steps_total, view->last.loss, name,
              measure(view->last.accuracy, view->last.rmse, last), view->last.learn_rate);
    if (view->validating[0] != '\0')
        draw_line(view, width, "%s", view->validating);
    else if (view->checked)
        draw_line(view, width, "validation after step %" PRIu64 ": loss %.4f, %s %s", view->check.step,
                  view->check.loss, name, measure(view->check.accuracy, view->check.rmse, check));
    else if (view->info.validation_samples > 0)
        draw_line(view, width, "validation: none yet");
    else
        draw_line(view, width, "no validation data: %s is measured on the training batches", name);
}

/* Redraw the picture. The curves get the lines that remain: a picture taller than the terminal
 * could not be overwritten in place.
 *   force  false: skip the redraw if the last one is less than REDRAW_MS old */
static void draw(gp_view *view, bool force)
{
    int64_t now = gp_now_ms();
    uint32_t width, height;
    uint32_t shown = view->info.workers < WORKERS_SHOWN ? view->info.workers : WORKERS_SHOWN;
    double total;

    if (!view->options.live || (!force && now - view->drawn_ms < REDRAW_MS))
        return;
    show_terminal_size(view->options.out, &width, &height);
    width = width > WIDTH_MAX ? WIDTH_MAX : width;
    int rows = ((int)height - 7 - (int)shown) / 2;

    if (rows > CURVE_ROWS_MAX)
        rows = CURVE_ROWS_MAX;
    view->drawn_ms = now;
    /* After a resize, lines may have wrapped and the start of the picture is unknown: clear it. */
    if (view->lines > 0 && width != view->width)
        fputs("\033[2J\033[H", view->options.out);
    else if (view->lines > 0)
        fprintf(view->options.out, "\033[%dA", view->lines);
    view->width = width;
    fputc('\r', view->options.out);
    view->lines = 0;
    draw_bar(view, width);
    draw_info(view, width);
    draw_curve(view, "loss", &view->loss, width, rows);
    draw_curve(view, view->measure.percent ? "accuracy" : "RMSE", &view->measure, width, rows);
    if (rows >= 2)
        draw_axis(view, width);

    /* Update the rates per worker and add them up. */
    total = 0;
    for (uint32_t i = 0; i < view->info.workers && i < WORKERS; i++) {
        gp_rates *r = &view->rates[i];
        double seconds = r->seconds - r->window_seconds;

        if (seconds > 0.5) { /* start a new window every half second */
            r->per_second = (double)(r->samples - r->window_samples) / seconds;
            r->window_seconds = r->seconds;
            r->window_samples = r->samples;
        } else if (r->per_second == 0 && r->seconds > 0) {
            r->per_second = (double)r->samples / r->seconds;
        }
        total += r->per_second;
    }
    for (uint32_t i = 0; i < shown; i++)
        draw_worker(view, i, width);
    if (shown < view->info.workers)
        draw_line(view, width, "total     %8.0f images/s   (%" PRIu32 " workers, %" PRIu32 " shown)", total,
                  view->info.workers, shown);
    else if (shown > 1)
        draw_line(view, width, "total     %8.0f images/s", total);
    if (view->sentence[0] != '\0' && !view->ended &&
        (view->sentence_until_ms == 0 || gp_now_ms() < view->sentence_until_ms))
        draw_line(view, width, "%s", view->sentence);
    fputs("\033[J", view->options.out);
    fflush(view->options.out);
}

/* ---- events ---- */

gp_view *view_new(const view_options *options)
{
    gp_view *view = gp_calloc(1, sizeof(*view));

    if (view == NULL)
        return NULL;
    view->options = *options;
    view->options.live = options->live && options->out != NULL;
    view->options.terminal = options->terminal && options->out != NULL && !options->live;
    return view;
}

void view_free(gp_view *view)
{
    if (view == NULL)
        return;
    if (view->held)
        table_show(view, &view->last, NULL);
    view->ended = true;
    progress_clear(view);
    if (view->last.step > 0)
        draw(view, true);
    gp_free(view);
}

void view_begin(gp_view *view, const gp_train_info *info)
{
    view->info = *info;
    view->printed_ms = gp_now_ms();
    curve_init(&view->loss);
    curve_init(&view->measure);
    view->steps_total = (uint64_t)info->steps_per_epoch * info->epochs;
}

void view_step(gp_view *view, const gp_train_step *step)
{
    gp_rates *r = &view->rates[step->rank % WORKERS];
    const double ms[PHASES] = { step->forward_ms,  step->backward_ms, step->wait_ms,
                                step->exchange_ms, step->commit_ms,   step->data_ms };

    r->samples += step->samples;
    r->seconds = step->seconds;
    for (int i = 0; i < PHASES; i++)
        r->ms[i] += ms[i];
    if (step->rank != 0)
        return;
    if (view->held)
        table_show(view, &view->last, NULL);
    view->validating[0] = '\0'; /* a validation interrupted by a worker failure has no result */
    view->last = *step;
    view->measure.percent = !of_values(step->accuracy, step->rmse);
    curve_add(&view->loss, step->step, view->steps_total, step->loss);
    curve_add(&view->measure, step->step, view->steps_total,
              view->measure.percent ? step->accuracy : step->rmse);
    if (step->step == 1 || step->step % view->options.frequency == 0) {
        /* Delay the line: a validation may follow this step, and one line shows both. */
        view->held = view->info.validation_samples > 0;
        if (!view->held)
            table_show(view, step, NULL);
    }
    progress_show(view);
    draw(view, false);
}

void view_check_progress(gp_view *view, const gp_train_validation_progress *progress)
{
    const double rate = progress->seconds > 0 ? (double)progress->done / progress->seconds : 0;
    char words[120];

    snprintf(view->validating, sizeof(view->validating), "validating: %s",
             cli_progress_words(words, sizeof(words), "samples", progress->done, progress->count, rate));
    if (view->options.terminal) {
        view->progress = true;
        fprintf(view->options.out, "\r%s\033[K", view->validating);
        fflush(view->options.out);
    }
    draw(view, true);
}

void view_check(gp_view *view, const gp_train_validation_result *check)
{
    view->validating[0] = '\0';
    view->check = *check;
    view->checked = true;
    double value = view->measure.percent ? check->accuracy : check->rmse;

    if (isfinite(check->loss))
        curve_point(&view->loss, check->step, view->steps_total)->check = check->loss;
    if (isfinite(value))
        curve_point(&view->measure, check->step, view->steps_total)->check = value;
    table_show(view, &view->last, check);
    draw(view, true);
}

void view_regroup(gp_view *view, const gp_train_rescale *regroup)
{
    double seconds = view->last.seconds;

    view->info.workers = regroup->workers;
    memcpy(view->info.worker_index, regroup->worker_index, sizeof(view->info.worker_index));
    /* A rank may now belong to another worker: discard the statistics. */
    for (uint32_t i = 0; i < WORKERS; i++)
        view->rates[i] = (gp_rates){ .seconds = seconds, .window_seconds = seconds };
    if (view->options.log != NULL)
        fprintf(view->options.log, "%" PRIu32 " -> %" PRIu32 " workers at step %" PRIu64 ", %.2f s: %s\n",
                regroup->workers_before, regroup->workers, regroup->step, regroup->seconds, regroup->cause);
    draw(view, true);
}

void view_print(gp_view *view, const char *sentence, bool lasting)
{
    show_clean(view->sentence, sizeof(view->sentence), sentence);
    view->sentence_until_ms = lasting ? 0 : gp_now_ms() + NOTE_MS;
    progress_clear(view);
    if (view->options.live)
        draw(view, true);
    else
        show_line(stderr, sentence);
}
