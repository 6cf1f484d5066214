#include "client/cli/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "client/cli/cli.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"

enum { POINTS = 400, WORKERS = 64, CURVE_ROWS = 6, REDRAW_MS = 100, WIDTH_MAX = 110 };

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
    double data, forward, backward, exchange, commit, wait; /* ms, over the steps since the last picture */
    double seconds;                                         /* of the last step seen */
    double window_seconds;                                  /* when the window began */
    uint64_t window_samples;
    double per_second;
} gp_rates;

struct gp_view {
    view_options options;
    gp_train_facts facts;
    gp_train_step last; /* of rank 0 */
    gp_train_check check;
    bool checked, headed;
    gp_curve loss, accuracy;
    gp_rates rates[WORKERS];
    uint64_t steps_total;
    int64_t drawn_ms;
    int lines; /* of the picture that stands */
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

static void table_head(gp_view *view, FILE *out)
{
    fprintf(out,
            "|=======================================================================================|\n"
            "|  Epoch  |  Step  |  Time     | Batch    | Validation | Batch   | Validation | Learning |\n"
            "|         |        |           | accuracy | accuracy   | loss    | loss       | rate     |\n"
            "|=======================================================================================|\n");
    view->headed = true;
}

static void table_time(double seconds, char text[16])
{
    snprintf(text, 16, "%02d:%02d:%05.2f", (int)(seconds / 3600), (int)(seconds / 60) % 60,
             fmod(seconds, 60.0));
}

static void table_line(gp_view *view, FILE *out, const gp_train_step *step, const gp_train_check *check)
{
    char time[16], accuracy[16] = "", loss[16] = "", batch[16] = "", batch_loss[16] = "";

    table_time(check != NULL ? check->seconds : step->seconds, time);
    if (check != NULL) {
        snprintf(accuracy, sizeof(accuracy), "%.2f %%", check->accuracy * 100);
        snprintf(loss, sizeof(loss), "%.4f", check->loss);
    }
    snprintf(batch, sizeof(batch), "%.2f %%", step->accuracy * 100);
    snprintf(batch_loss, sizeof(batch_loss), "%.4f", step->loss);
    fprintf(out, "| %7" PRIu32 " | %6" PRIu64 " | %s | %8s | %10s | %7s | %10s | %8.2g |\n", step->epoch,
            step->step, time, batch, accuracy, batch_loss, loss, step->learn_rate);
    fflush(out);
    (void)view;
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
            table_head(view, outs[i]);
        table_line(view, outs[i], step, check);
    }
    view->headed = true;
}

/* ---- picture ---- */

static uint32_t terminal_width(FILE *out)
{
    struct winsize size;

    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col < 40)
        return 80;
    return size.ws_col > WIDTH_MAX ? WIDTH_MAX : size.ws_col;
}

__attribute__((format(printf, 2, 3))) static void draw_line(gp_view *view, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(view->options.out, format, arguments);
    va_end(arguments);
    fputs("\033[K\n", view->options.out);
    view->lines++;
}

static void draw_bar(gp_view *view, uint32_t width)
{
    static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    double share = view->steps_total == 0 ? 0 : (double)view->last.step / (double)view->steps_total;
    double left = share > 0 ? view->last.seconds * (1 - share) / share : 0;
    uint32_t cells = width > 60 ? width - 48 : 16;
    uint32_t eights = (uint32_t)(share * cells * 8);
    char bar[512] = "", time[40];

    for (uint32_t i = 0; i < cells && i < 150; i++)
        strcat(bar, i < eights / 8    ? "█"
                    : i == eights / 8 ? (eights % 8 == 0 ? "·" : eighths[eights % 8])
                                      : "·");
    draw_line(view, "%s %3.0f %%  epoch %" PRIu32 "/%" PRIu32 "  %s left", bar, share * 100, view->last.epoch,
              view->facts.epochs, cli_duration(left, time, sizeof(time)));
}

static void draw_curve(gp_view *view, const char *name, const gp_curve *curve, uint32_t width, bool from_zero)
{
    static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    double low = INFINITY, high = -INFINITY;
    uint32_t columns = width > 24 ? width - 16 : 24;

    if (curve->count == 0)
        return;
    for (uint32_t i = 0; i < curve->count; i++) {
        low = fmin(low, curve->value[i]);
        high = fmax(high, curve->value[i]);
    }
    if (from_zero)
        low = 0;
    if (!(high > low))
        high = low + 1e-9;
    for (int row = CURVE_ROWS - 1; row >= 0; row--) {
        char line[WIDTH_MAX * 4] = "";

        for (uint32_t x = 0; x < columns && x < WIDTH_MAX; x++) {
            double height = (curve_at(curve, x, columns) - low) / (high - low) * CURVE_ROWS * 8 - row * 8;
            int eighth = height <= 0 ? 0 : height >= 8 ? 8 : (int)height;

            if (row == 0 && eighth == 0)
                eighth = 1;
            strcat(line, blocks[eighth]);
        }
        if (row == CURVE_ROWS - 1)
            draw_line(view, "%8.4f ┤%s", high, line);
        else if (row == 0)
            draw_line(view, "%8.4f ┤%s %s", low, line, name);
        else
            draw_line(view, "         │%s", line);
    }
}

static void draw_workers(gp_view *view)
{
    double total = 0;

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
        total += r->per_second;
    }
    for (uint32_t i = 0; i < view->facts.workers && i < 8; i++) {
        const gp_rates *r = &view->rates[i];
        double sum = r->data + r->forward + r->backward + r->exchange + r->commit + r->wait + 1e-12;

        draw_line(view,
                  "worker %-2" PRIu32
                  " %8.0f images/s   forward %2.0f %%  backward %2.0f %%  data %2.0f %%  exchange %2.0f "
                  "%%  wait %2.0f %%  commit %2.0f %%",
                  view->facts.worker_index[i], r->per_second, 100 * r->forward / sum, 100 * r->backward / sum,
                  100 * r->data / sum, 100 * r->exchange / sum, 100 * r->wait / sum, 100 * r->commit / sum);
    }
    draw_line(view, "together  %8.0f images/s", total);
}

static void draw(gp_view *view, bool force)
{
    int64_t now = gp_now_ms();
    uint32_t width = terminal_width(view->options.out);

    if (!view->options.live || (!force && now - view->drawn_ms < REDRAW_MS))
        return;
    view->drawn_ms = now;
    if (view->lines > 0)
        fprintf(view->options.out, "\033[%dA\r", view->lines);
    view->lines = 0;
    draw_bar(view, width);
    draw_line(view, "step %" PRIu64 "/%" PRIu64 "   loss %.4f   batch accuracy %.1f %%   learning rate %.3g",
              view->last.step, view->steps_total, view->last.loss, view->last.accuracy * 100,
              view->last.learn_rate);
    if (view->checked)
        draw_line(view, "validation after epoch %" PRIu32 ": loss %.4f, accuracy %.2f %%", view->check.epoch,
                  view->check.loss, view->check.accuracy * 100);
    else
        draw_line(view, view->facts.validation_samples > 0
                            ? "validation: after the epoch"
                            : "no validation data: the accuracy shown is that of the training batches");
    draw_curve(view, "loss", &view->loss, width, true);
    draw_curve(view, "accuracy", &view->accuracy, width, false);
    draw_workers(view);
    if (view->sentence[0] != '\0')
        draw_line(view, "%s", view->sentence);
    fputs("\033[J", view->options.out);
    fflush(view->options.out);
}

/* ---- events ---- */

gp_view *view_new(const view_options *options)
{
    gp_view *view = gp_calloc(1, sizeof(*view));

    if (view != NULL)
        view->options = *options;
    return view;
}

void view_free(gp_view *view)
{
    if (view == NULL)
        return;
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
    view->last = *step;
    curve_add(&view->loss, step->loss);
    curve_add(&view->accuracy, step->accuracy);
    if (step->step == 1 || step->step % view->options.frequency == 0)
        table_show(view, step, NULL);
    draw(view, false);
}

void view_check(gp_view *view, const gp_train_check *check)
{
    view->check = *check;
    view->checked = true;
    table_show(view, &view->last, check);
    draw(view, true);
}

void view_say(gp_view *view, const char *sentence)
{
    snprintf(view->sentence, sizeof(view->sentence), "%s", sentence);
    if (view->options.live)
        draw(view, true);
    else
        fprintf(stderr, "%s\n", sentence);
}
