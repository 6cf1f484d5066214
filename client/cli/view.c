#include "client/cli/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"

enum { POINTS = 400, WORKERS = 64, WORKERS_SHOWN = 8, CURVE_ROWS_MAX = 6, REDRAW_MS = 100, WIDTH_MAX = 110 };
enum { LINE_BYTES = WIDTH_MAX * 4 };

/* A curve keeps POINTS means: when it is full, neighbours are merged, so it always spans the whole run. */
typedef struct gp_curve {
    double value[POINTS];
    uint32_t count;  /* points */
    uint32_t per;    /* values in one point */
    double sum;      /* of the point that is being filled */
    uint32_t filled; /* values in it */
} gp_curve;

typedef struct gp_rates {
    uint64_t samples;
    double data, forward, backward, exchange, commit, wait; /* ms, over the whole run */
    double seconds;                                         /* of the last step seen */
    double window_seconds;                                  /* when the window began */
    uint64_t window_samples;
    double per_second;
} gp_rates;

/* What the terminal can show: blocks by eighths, or letters where it does not speak UTF-8. */
typedef struct gp_glyphs {
    const char *columns[9]; /* of a curve, by height */
    const char *bar[9];     /* by length */
    const char *tick, *wall;
} gp_glyphs;

static const gp_glyphs glyphs_utf8 = {
    { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }, { "·", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█" }, "┤", "│"
};
static const gp_glyphs glyphs_ascii = {
    { " ", ".", ".", ".", ":", ":", ":", "|", "#" }, { ".", ".", ".", ".", "-", "-", "-", "-", "#" }, "+", "|"
};

struct gp_view {
    view_options options;
    const gp_glyphs *glyphs;
    gp_train_facts facts;
    gp_train_step last; /* of rank 0 */
    gp_train_check check;
    bool checked, headed;
    bool held; /* last has a table line that waits for the validation after the same step */
    bool ended;
    gp_curve loss, measure; /* measure: accuracy, or RMSE of values */
    gp_rates rates[WORKERS];
    uint64_t steps_total;
    int64_t drawn_ms;
    int lines;      /* of the picture that stands */
    uint32_t width; /* when it was drawn */
    char sentence[160];
};

/* ---- curves ---- */

static void curve_add(gp_curve *curve, double value)
{
    if (!isfinite(value))
        return;
    if (curve->per == 0)
        curve->per = 1;
    curve->sum += value;
    if (++curve->filled < curve->per)
        return;
    if (curve->count == POINTS) {
        for (uint32_t i = 0; i < POINTS / 2; i++)
            curve->value[i] = (curve->value[2 * i] + curve->value[2 * i + 1]) / 2;
        curve->count = POINTS / 2;
        curve->per *= 2;
        if (curve->filled < curve->per)
            return;
    }
    curve->value[curve->count++] = curve->sum / curve->filled;
    curve->sum = 0;
    curve->filled = 0;
}

/* Column x of width columns: the mean of the points it covers. */
static double curve_at(const gp_curve *curve, uint32_t x, uint32_t width)
{
    uint32_t from = x * curve->count / width, to = (x + 1) * curve->count / width;
    double sum = 0;

    if (to <= from)
        to = from + 1;
    for (uint32_t i = from; i < to; i++)
        sum += curve->value[i];
    return sum / (to - from);
}

/* ---- table ---- */

/* A network of values has no accuracy, but the root of the mean squared error. */
static bool of_values(double accuracy, double rmse)
{
    return isnan(accuracy) && !isnan(rmse);
}

static const char *measure(double accuracy, double rmse, char text[16])
{
    *text = '\0';
    if (of_values(accuracy, rmse))
        snprintf(text, 16, "%.4g", rmse);
    else if (!isnan(accuracy))
        snprintf(text, 16, "%.2f %%", accuracy * 100);
    return text;
}

static void table_head(FILE *out, bool values)
{
    const char *name = values ? "RMSE" : "accuracy";

    fprintf(out,
            "|==========================================================================================|\n"
            "|  Epoch  |  Step  | Time        | Batch    | Validation | Batch   | Validation | Learning |\n"
            "|         |        | h:min:s     | %-8s | %-10s | loss    | loss       | rate     |\n"
            "|==========================================================================================|\n",
            name, name);
}

static void table_time(double seconds, char text[16])
{
    snprintf(text, 16, "%02d:%02d:%05.2f", (int)(seconds / 3600), (int)(seconds / 60) % 60,
             fmod(seconds, 60.0));
}

static void table_line(FILE *out, const gp_train_step *step, const gp_train_check *check)
{
    char time[16], accuracy[16] = "", loss[16] = "", batch[16] = "", batch_loss[16] = "";

    table_time(check != NULL ? check->seconds : step->seconds, time);
    if (check != NULL) {
        measure(check->accuracy, check->rmse, accuracy);
        snprintf(loss, sizeof(loss), "%.4f", check->loss);
    }
    measure(step->accuracy, step->rmse, batch);
    if (!isnan(step->loss)) /* all was ignored */
        snprintf(batch_loss, sizeof(batch_loss), "%.4f", step->loss);
    fprintf(out, "| %7" PRIu32 " | %6" PRIu64 " | %s | %8s | %10s | %7s | %10s | %8.2g |\n", step->epoch,
            step->step, time, batch, accuracy, batch_loss, loss, step->learn_rate);
    fflush(out);
}

/* To the log always, to the terminal when there is no picture. */
static void table_show(gp_view *view, const gp_train_step *step, const gp_train_check *check)
{
    FILE *outs[] = { view->options.live ? NULL : view->options.out, view->options.log };
    bool head = !view->headed;

    for (int i = 0; i < 2; i++) {
        if (outs[i] == NULL)
            continue;
        if (head)
            table_head(outs[i], of_values(step->accuracy, step->rmse));
        table_line(outs[i], step, check);
    }
    view->headed = true;
    view->held = false;
}

/* ---- picture ---- */

static void terminal_size(FILE *out, uint32_t *width, uint32_t *height)
{
    struct winsize size;

    *width = 80;
    *height = 24;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0)
        return;
    if (size.ws_col > 0)
        *width = size.ws_col > WIDTH_MAX ? WIDTH_MAX : size.ws_col;
    if (size.ws_row > 0)
        *height = size.ws_row;
}

/* The locale's name tells, also where that locale is not installed. */
static bool terminal_speaks_utf8(void)
{
    const char *names[] = { getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG") };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i] == NULL || names[i][0] == '\0')
            continue;
        const char *charset = strchr(names[i], '.');

        return charset != NULL &&
               (strncasecmp(charset, ".utf-8", 6) == 0 || strncasecmp(charset, ".utf8", 5) == 0);
    }
    return false;
}

/* Bytes of text that fit into width columns; every character we draw is one column wide. */
static int clip(const char *text, uint32_t width)
{
    const char *at = text;

    for (uint32_t columns = 0; *at != '\0'; at++) {
        bool begins = ((unsigned char)*at & 0xc0) != 0x80;

        if (begins && columns == width)
            break;
        columns += begins;
    }
    return (int)(at - text);
}

/* A line that wrapped would be counted wrong when the picture is drawn over. */
__attribute__((format(printf, 3, 4))) static void draw_line(gp_view *view, uint32_t width, const char *format,
                                                            ...)
{
    char line[2 * LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(view->options.out, "%.*s\033[K\n", clip(line, width), line);
    view->lines++;
}

static void draw_bar(gp_view *view, uint32_t width)
{
    double share = view->steps_total == 0 ? 0 : (double)view->last.step / (double)view->steps_total;
    double left = share > 0 ? view->last.seconds * (1 - share) / share : 0;
    uint32_t cells = width > 60 ? width - 42 : width > 50 ? width - 38 : 10;
    uint32_t eighths = (uint32_t)(share * cells * 8);
    char bar[LINE_BYTES] = "", time[40] = "";

    for (uint32_t i = 0; i < cells; i++) {
        uint32_t filled = eighths <= i * 8 ? 0 : eighths - i * 8;

        strcat(bar, view->glyphs->bar[filled > 8 ? 8 : filled]);
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
              view->last.epoch, view->facts.epochs, time);
}

/* rows lines: the largest value on the left of the first, the smallest of the last, the name between. */
static void draw_curve(gp_view *view, const char *name, const gp_curve *curve, uint32_t width, int rows,
                       bool percent)
{
    double low = percent ? INFINITY : 0, high = -INFINITY;
    uint32_t columns = width > 24 ? width - 11 : 13;

    if (curve->count == 0 || rows < 2)
        return;
    for (uint32_t x = 0; x < columns; x++) {
        low = fmin(low, curve_at(curve, x, columns));
        high = fmax(high, curve_at(curve, x, columns));
    }
    if (!(high > low))
        high = low + 1e-9;
    for (int row = rows - 1; row >= 0; row--) {
        bool edge = row == rows - 1 || row == 0;
        double value = row == 0 ? low : high;
        char line[LINE_BYTES] = "", label[24] = "";

        for (uint32_t x = 0; x < columns; x++) {
            double height = (curve_at(curve, x, columns) - low) / (high - low) * rows * 8 - row * 8;
            int eighth = height <= 0 ? 0 : height >= 8 ? 8 : (int)height;

            strcat(line, view->glyphs->columns[row == 0 && eighth == 0 ? 1 : eighth]);
        }
        if (edge)
            snprintf(label, sizeof(label), percent ? "%.1f %%" : "%.4f", percent ? value * 100 : value);
        else if (row == rows - 2)
            snprintf(label, sizeof(label), "%s", name);
        draw_line(view, width, "%8s %s%s", label, edge ? view->glyphs->tick : view->glyphs->wall, line);
    }
}

static void measure_rates(gp_view *view, double *total)
{
    *total = 0;
    for (uint32_t i = 0; i < view->facts.workers && i < WORKERS; i++) {
        gp_rates *r = &view->rates[i];
        double seconds = r->seconds - r->window_seconds;

        if (seconds > 0.5) { /* a fresh window twice a second */
            r->per_second = (double)(r->samples - r->window_samples) / seconds;
            r->window_seconds = r->seconds;
            r->window_samples = r->samples;
        } else if (r->per_second == 0 && r->seconds > 0) {
            r->per_second = (double)r->samples / r->seconds;
        }
        *total += r->per_second;
    }
}

/* Speed, then where the time goes: as many parts as the line holds. */
static void draw_worker(gp_view *view, uint32_t rank, uint32_t width)
{
    const gp_rates *r = &view->rates[rank];
    const struct {
        const char *name;
        double ms;
    } parts[] = { { "forward", r->forward },   { "backward", r->backward }, { "wait", r->wait },
                  { "exchange", r->exchange }, { "commit", r->commit },     { "data", r->data } };
    double sum = r->data + r->forward + r->backward + r->exchange + r->commit + r->wait + 1e-12;
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof(line), "worker %-3" PRIu32 "%8.0f images/s ",
                        view->facts.worker_index[rank], r->per_second);

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char part[40];
        int bytes = snprintf(part, sizeof(part), "  %s %2.0f %%", parts[i].name, 100 * parts[i].ms / sum);

        if ((uint32_t)(used + bytes) > width)
            break;
        used += snprintf(line + used, sizeof(line) - (size_t)used, "%s", part);
    }
    draw_line(view, width, "%s", line);
}

static void draw_facts(gp_view *view, uint32_t width)
{
    const char *name = of_values(view->last.accuracy, view->last.rmse) ? "RMSE" : "accuracy";
    char last[16], check[16];

    draw_line(view, width,
              width < 72 ? "step %" PRIu64 "/%" PRIu64 "  loss %.4f  %s %s  rate %.3g"
                         : "step %" PRIu64 "/%" PRIu64 "   loss %.4f   batch %s %s   learning rate %.3g",
              view->last.step, view->steps_total, view->last.loss, name,
              measure(view->last.accuracy, view->last.rmse, last), view->last.learn_rate);
    if (view->checked)
        draw_line(view, width, "validation after step %" PRIu64 ": loss %.4f, %s %s", view->check.step,
                  view->check.loss, name, measure(view->check.accuracy, view->check.rmse, check));
    else if (view->facts.validation_samples > 0)
        draw_line(view, width, "validation: none yet");
    else
        draw_line(view, width, "no validation data: %s is of the training batches", name);
}

/* Curves get the lines that the rest leaves: a picture taller than the terminal could not be drawn over. */
static void draw(gp_view *view, bool force)
{
    int64_t now = gp_now_ms();
    uint32_t width, height;
    uint32_t shown = view->facts.workers < WORKERS_SHOWN ? view->facts.workers : WORKERS_SHOWN;
    double total;

    if (!view->options.live || (!force && now - view->drawn_ms < REDRAW_MS))
        return;
    terminal_size(view->options.out, &width, &height);
    int rows = ((int)height - 6 - (int)shown) / 2;

    if (rows > CURVE_ROWS_MAX)
        rows = CURVE_ROWS_MAX;
    view->drawn_ms = now;
    if (view->lines > 0 &&
        width != view->width) /* its lines may have wrapped: nobody knows where it begins */
        fputs("\033[2J\033[H", view->options.out);
    else if (view->lines > 0)
        fprintf(view->options.out, "\033[%dA", view->lines);
    view->width = width;
    fputc('\r', view->options.out);
    view->lines = 0;
    draw_bar(view, width);
    draw_facts(view, width);
    draw_curve(view, "loss", &view->loss, width, rows, false);
    bool values = of_values(view->last.accuracy, view->last.rmse);

    draw_curve(view, values ? "RMSE" : "accuracy", &view->measure, width, rows, !values);
    measure_rates(view, &total);
    for (uint32_t i = 0; i < shown; i++)
        draw_worker(view, i, width);
    if (shown < view->facts.workers)
        draw_line(view, width, "together  %8.0f images/s   (%" PRIu32 " workers, %" PRIu32 " shown)", total,
                  view->facts.workers, shown);
    else if (shown > 1)
        draw_line(view, width, "together  %8.0f images/s", total);
    if (view->sentence[0] != '\0' && !view->ended)
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
    view->glyphs = terminal_speaks_utf8() ? &glyphs_utf8 : &glyphs_ascii;
    return view;
}

void view_free(gp_view *view)
{
    if (view == NULL)
        return;
    if (view->held)
        table_show(view, &view->last, NULL);
    view->ended = true;
    if (view->last.step > 0)
        draw(view, true);
    gp_free(view);
}

void view_begin(gp_view *view, const gp_train_facts *facts)
{
    view->facts = *facts;
    view->steps_total = (uint64_t)facts->steps_per_epoch * facts->epochs;
}

void view_step(gp_view *view, const gp_train_step *step)
{
    gp_rates *r = &view->rates[step->rank % WORKERS];

    r->samples += step->samples;
    r->seconds = step->seconds;
    r->data += step->data_ms;
    r->forward += step->forward_ms;
    r->backward += step->backward_ms;
    r->exchange += step->exchange_ms;
    r->commit += step->commit_ms;
    r->wait += step->wait_ms;
    if (step->rank != 0)
        return;
    if (view->held)
        table_show(view, &view->last, NULL);
    view->last = *step;
    curve_add(&view->loss, step->loss);
    curve_add(&view->measure, of_values(step->accuracy, step->rmse) ? step->rmse : step->accuracy);
    if (step->step == 1 || step->step % view->options.frequency == 0) {
        /* A validation may follow this step: one line shows both. */
        view->held = view->facts.validation_samples > 0;
        if (!view->held)
            table_show(view, step, NULL);
    }
    draw(view, false);
}

void view_check(gp_view *view, const gp_train_check *check)
{
    view->check = *check;
    view->checked = true;
    table_show(view, &view->last, check);
    draw(view, true);
}

void view_regroup(gp_view *view, const gp_train_regroup *regroup)
{
    double seconds = view->last.seconds;

    view->facts.workers = regroup->workers;
    memcpy(view->facts.worker_index, regroup->worker_index, sizeof(view->facts.worker_index));
    /* What a rank has done so far was another worker's. */
    for (uint32_t i = 0; i < WORKERS; i++)
        view->rates[i] = (gp_rates){ .seconds = seconds, .window_seconds = seconds };
    if (view->options.log != NULL)
        fprintf(view->options.log, "%" PRIu32 " -> %" PRIu32 " workers at step %" PRIu64 ", %.2f s: %s\n",
                regroup->workers_before, regroup->workers, regroup->step, regroup->seconds, regroup->cause);
    draw(view, true);
}

void view_say(gp_view *view, const char *sentence)
{
    show_clean(view->sentence, sizeof(view->sentence), sentence);
    if (view->options.live)
        draw(view, true);
    else
        show_line(stderr, sentence);
}
