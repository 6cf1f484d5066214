/* Text output for people: tables, pool status, progress lines, durations and sizes. JSON output is
 * in show_json.c. */
#include "client/cli/show.h"

#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "client/cli/cli.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/text/text.h"

enum { COLUMNS_MAX = 24, CELL_BYTES = 120, LINE_BYTES = 4096 };

struct show_table {
    uint32_t columns, count;
    int width[COLUMNS_MAX];
    char (*cells)[CELL_BYTES]; /* `count` cells, row by row; row 0 holds the titles */
};

/* Remove the incomplete UTF-8 character at the end of a text that fills its buffer: the text was
 * truncated. */
static void drop_partial(char *text, size_t bytes)
{
    size_t at = strlen(text);

    if (at + 1 < bytes || at == 0)
        return;
    for (at--; at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80; at--)
        ;
    if ((unsigned char)text[at] >= 0xc0 && gp_utf8_length((const uint8_t *)text + at, strlen(text + at)) == 0)
        text[at] = '\0';
}

/* Locale for wcwidth(): the user's locale may not be UTF-8. 0: the system lacks it. */
static locale_t width_locale;

static void width_locale_open(void)
{
    width_locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

/* Return the length of the UTF-8 character at the start of a text, and set *columns to its width:
 * 2 for East Asian wide characters and emoji, 0 for combining characters, otherwise 1. An invalid
 * byte is a character. The calling thread uses width_locale. */
static size_t character_width(const char *text, int *columns)
{
    static const uint8_t lead_bits[] = { [2] = 0x1f, [3] = 0x0f, [4] = 0x07 };
    const uint8_t *c = (const uint8_t *)text;
    const size_t length = gp_utf8_length(c, strnlen(text, 4));
    wchar_t character;

    *columns = 1;
    if (length <= 1)
        return 1;
    character = c[0] & lead_bits[length];
    for (size_t i = 1; i < length; i++)
        character = character << 6 | (c[i] & 0x3f);
    if (width_locale != (locale_t)0 && wcwidth(character) >= 0)
        *columns = wcwidth(character);
    return length;
}

/* Return how many leading bytes of a line fit in `columns`, and set *used to their columns. */
static size_t line_fit(const char *line, int columns, int *used)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    locale_t before = (locale_t)0;
    size_t at = 0;
    int width;

    pthread_once(&once, width_locale_open);
    if (width_locale != (locale_t)0)
        before = uselocale(width_locale);
    for (*used = 0; line[at] != '\0' && line[at] != '\n'; *used += width) {
        const size_t length = character_width(line + at, &width);

        if (width > columns - *used)
            break;
        at += length;
    }
    if (before != (locale_t)0)
        uselocale(before);
    return at;
}

/* Return how many columns a text has. */
static int columns_of(const char *text)
{
    int columns;

    line_fit(text, INT_MAX, &columns);
    return columns;
}

char *show_clean(char *out, size_t bytes, const char *text)
{
    snprintf(out, bytes, "%s", text);
    drop_partial(out, bytes);
    return gp_printable(out);
}

size_t show_cut(const char *line, uint32_t columns)
{
    int used;

    return line_fit(line, columns < INT_MAX ? (int)columns : INT_MAX, &used);
}

bool show_can_redraw(FILE *out)
{
    const char *term = getenv("TERM");

    return isatty(fileno(out)) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

void show_terminal_size(FILE *out, uint32_t *width, uint32_t *height)
{
    struct winsize size = { 0 };

    ioctl(fileno(out), TIOCGWINSZ, &size);
    *width = size.ws_col > 0 ? size.ws_col : 80;
    *height = size.ws_row > 0 ? size.ws_row : 24;
}

void show_line(FILE *file, const char *text)
{
    char clean[LINE_BYTES];

    fprintf(file, "%s\n", show_clean(clean, sizeof(clean), text));
}

/* Append a cell. */
static void cell_add(show_table *table, const char *text, size_t bytes)
{
    void *grown = gp_array_grow(table->cells, table->count, CELL_BYTES);
    uint32_t column = table->count % table->columns;
    char *cell;

    if (grown == NULL)
        return;
    table->cells = grown;
    cell = table->cells[table->count++];
    snprintf(cell, CELL_BYTES, "%.*s", (int)bytes, text);
    drop_partial(cell, CELL_BYTES);
    gp_printable(cell);
    if (columns_of(cell) > table->width[column])
        table->width[column] = columns_of(cell);
}

show_table *show_table_new(uint32_t columns, const char *titles)
{
    show_table *table = gp_calloc(1, sizeof(*table));

    if (table == NULL)
        return NULL;
    table->columns = columns;
    for (size_t bytes;; titles += bytes + 1) {
        bytes = strcspn(titles, "\t");
        cell_add(table, titles, bytes);
        if (titles[bytes] == '\0')
            return table;
    }
}

/* The cells are formatted conversion by conversion, because an argument may contain a tab. */
void show_cells(show_table *table, const char *format, ...)
{
    char cell[CELL_BYTES] = "", one[16];
    size_t used = 0;
    va_list values;

    va_start(values, format);
    for (size_t bytes; table != NULL; format += bytes) {
        const size_t room = sizeof(cell) - used;
        const bool percent = format[0] == '%';
        int wrote;

        bytes = percent ? 1 + strcspn(format + 1, "%csdufg") + 1 : strcspn(format, "%\t");
        snprintf(one, sizeof(one), "%.*s", (int)bytes, format);
        if (!percent)
            wrote = snprintf(cell + used, room, "%.*s", (int)bytes, format);
        else if (format[bytes - 1] == 's')
            wrote = snprintf(cell + used, room, one, va_arg(values, const char *));
        else if (format[bytes - 1] == 'f' || format[bytes - 1] == 'g')
            wrote = snprintf(cell + used, room, one, va_arg(values, double));
        else if (strchr(one, 'l') != NULL)
            wrote = snprintf(cell + used, room, one, va_arg(values, long));
        else
            wrote = snprintf(cell + used, room, one, format[bytes - 1] == '%' ? 0 : va_arg(values, int));
        used += wrote < 0 ? 0 : (size_t)wrote < room ? (size_t)wrote : room - 1;
        if (format[bytes] == '\t' || format[bytes] == '\0') {
            cell_add(table, cell, used);
            used = 0;
            cell[0] = '\0';
            if (format[bytes] == '\0')
                break;
            bytes++;
        }
    }
    va_end(values);
}

void show_table_free(show_table *table)
{
    if (table == NULL)
        return;
    gp_free(table->cells);
    gp_free(table);
}

void show_table_write(const show_table *table, FILE *out)
{
    for (uint32_t row = 0; table != NULL && row < table->count / table->columns; row++) {
        /* padding before the next nonempty cell, so that lines have no trailing blanks */
        int gap = 0;

        for (uint32_t i = 0; i < table->columns; i++) {
            const char *cell = table->cells[(size_t)row * table->columns + i];

            if (cell[0] != '\0') {
                fprintf(out, "%*s%s", gap, "", cell);
                gap = -columns_of(cell);
            }
            gap += table->width[i] + 2;
        }
        fputc('\n', out);
    }
}

void show_table_print_free(show_table *table)
{
    show_table_write(table, stdout);
    show_table_free(table);
}

/* Return the time that a worker has spent on forward, backward, exchange and commit. */
static double computed_s(const gp_worker_row *row)
{
    return (double)(row->forward_us_total + row->backward_us_total + row->exchange_us_total +
                    row->commit_us_total) *
           1e-6;
}

/* Return the part of the time in leases that the workers spent on training steps, 0 to 1. NaN: no
 * training. */
static double computing(const gp_status_reply *now, const gp_status_reply *before)
{
    double computed = 0, held = 0;

    for (uint32_t i = 0; i < now->workers_count; i++) {
        const gp_worker_row *row = &now->workers[i];

        computed += computed_s(row);
        held += (double)row->held_ms_total * 1e-3;
        if (before != NULL && i < before->workers_count && before->workers[i].slot.pid == row->slot.pid &&
            before->workers[i].held_ms_total <= row->held_ms_total) {
            computed -= computed_s(&before->workers[i]);
            held -= (double)before->workers[i].held_ms_total * 1e-3;
        }
    }
    return computed > 0 && held > 0 ? fmin(computed / held, 1) : NAN;
}

/* Print how the pool is used, such as "held 2 of 2 workers, computing 93 %; 1 request waits (train
 * lenet, 40 s)". */
static void show_use(const gp_status_reply *status, const gp_status_reply *before)
{
    const double part = computing(status, before);
    const gp_lease_row *waiting = NULL;
    uint32_t held = 0, waits = 0;
    char age[40];

    for (uint32_t i = 0; i < status->workers_count; i++)
        held += status->workers[i].lease != 0;
    for (uint32_t i = 0; i < status->leases_count; i++)
        if (status->leases[i].state == GP_LEASE_QUEUED) {
            waiting = waiting == NULL ? &status->leases[i] : waiting;
            waits++;
        }
    printf("held %" PRIu32 " of %" PRIu32 " worker%s", held, status->workers_count,
           gp_plural(status->workers_count));
    if (!isnan(part))
        printf(", computing %.0f %%", part * 100);
    if (waiting != NULL)
        printf("; %" PRIu32 " request%s wait%s (%s, %s)", waits, gp_plural(waits), waits == 1 ? "s" : "",
               waiting->purpose, cli_duration((double)waiting->age_ms * 1e-3, age, sizeof(age)));
    printf("\n");
}

/* Print the resources of the workers, if any worker has resources. */
static void show_resources(const gp_status_reply *status)
{
    const char *texts[GP_WORKERS_MAX];
    char line[LINE_BYTES];
    bool any = false;

    for (uint32_t i = 0; i < status->workers_count; i++) {
        texts[i] = status->workers[i].slot.resources;
        any = any || texts[i][0] != '\0';
    }
    if (any)
        printf("resources: %s\n", gp_resources_describe(line, sizeof(line), texts, status->workers_count));
}

void show_status(const gp_status_reply *status, const gp_status_reply *before)
{
    char up[40], idle[40], end[64] = "no idle timeout";
    show_table *workers = show_table_new(7, "worker\tstate\tdevice\tcores\tpid\tlease\t");

    if (status->idle_timeout_ms != 0)
        snprintf(end, sizeof(end), "ends after %s without use",
                 cli_duration((double)status->idle_timeout_ms * 1e-3, idle, sizeof(idle)));
    printf("pool %s: %" PRIu32 " worker%s, up %s, %s%s\n", status->pool, status->workers_count,
           gp_plural(status->workers_count), cli_duration((double)status->uptime_ms * 1e-3, up, sizeof(up)),
           end, status->accepting ? "" : "; shutting down");
    show_use(status, before);
    printf("\n");
    for (uint32_t i = 0; i < status->workers_count; i++) {
        const gp_worker_row *row = &status->workers[i];
        const gp_slot *slot = &row->slot;
        char device[200], lease[24] = "-";

        snprintf(device, sizeof(device),
                 slot->device_kind == GP_DEVICE_CUDA ? "cuda:%" PRIu32 " %s" : "%.0d%s", slot->device_index,
                 slot->device_kind == GP_DEVICE_CUDA  ? slot->device_name
                 : slot->device_kind == GP_DEVICE_CPU ? "cpu"
                                                      : "none");
        if (row->lease != 0)
            snprintf(lease, sizeof(lease), "%" PRIu64, row->lease);
        show_cells(workers, "%" PRIu32 "\t%s\t%s\t%s\t%" PRIu32 "\t%s\t%s", slot->index,
                   pool_worker_word(row), device, slot->shared ? "shared" : slot->cores, slot->pid, lease,
                   row->reason);
    }
    show_table_print_free(workers);
    show_resources(status);
    if (status->listen[0] != '\0')
        printf("\nother hosts: %s, %" PRIu32 " connection%s, %" PRIu64 " refused, %" PRIu64 " closed\n",
               status->listen, status->remote_links, gp_plural(status->remote_links), status->remote_refused,
               status->remote_cut);
    if (status->leases_count == 0)
        return;
    show_table *leases = show_table_new(6, "lease\tstate\tpurpose\tclient\tworkers\tfor");

    printf("\n");
    for (uint32_t i = 0; i < status->leases_count; i++) {
        const gp_lease_row *row = &status->leases[i];
        char age[40];

        show_cells(leases, "%" PRIu64 "\t%s\t%s\t%" PRIu32 "\t%" PRIu32 "\t%s", row->lease,
                   row->state == GP_LEASE_GRANTED ? "granted" : "waiting", row->purpose, row->client_pid,
                   row->workers, cli_duration((double)row->age_ms * 1e-3, age, sizeof(age)));
    }
    show_table_print_free(leases);
}

/* ---- progress ---- */

/* When the progress line first appears, and the minimum interval between updates. */
enum { PROGRESS_FIRST_MS = 2000, PROGRESS_EACH_MS = 200 };

void cli_progress_begin(const cli_call *call, cli_progress *progress, const char *unit)
{
    *progress =
        (cli_progress){ .unit = unit,
                        .begin_ms = gp_now_ms(),
                        .tell = show_can_redraw(stderr) && !((const cli_common *)call->options)->quiet };
}

/* Format an amount; unit NULL: bytes. */
static char *amount_words(char *text, size_t bytes, const char *unit, double amount)
{
    if (unit == NULL)
        return cli_bytes(amount, text, bytes);
    snprintf(text, bytes, "%.0f", amount);
    return text;
}

char *cli_progress_words(char *text, size_t bytes, const char *unit, uint64_t done, uint64_t count,
                         double rate)
{
    char have[40], all[48] = "", percent[16] = "", speed[80] = "", left[64] = "", number[40];

    if (count != 0 && done <= count) {
        snprintf(all, sizeof(all), " of %s", amount_words(number, sizeof(number), unit, (double)count));
        snprintf(percent, sizeof(percent), ", %d %%", (int)(100 * (double)done / (double)count));
    }
    if (rate > 0)
        snprintf(speed, sizeof(speed), ", %.*f %s/s", rate < 10 ? 2 : 0, rate, unit == NULL ? "" : unit);
    if (rate > 0 && unit == NULL)
        snprintf(speed, sizeof(speed), ", %s/s", cli_bytes(rate, number, sizeof(number)));
    if (rate > 0 && count > done)
        snprintf(left, sizeof(left), ", %s left",
                 cli_duration((double)(count - done) / rate, number, sizeof(number)));
    snprintf(text, bytes, "%s%s%s%s%s%s%s", amount_words(have, sizeof(have), unit, (double)done), all,
             unit == NULL ? "" : " ", unit == NULL ? "" : unit, percent, speed, left);
    return text;
}

void cli_progress_show(cli_progress *progress, const char *name, uint64_t done, uint64_t count)
{
    int64_t now = gp_now_ms();
    double rate = 0;
    char words[200];

    if (progress->first_ms == 0 && done > 0) {
        progress->first_ms = now;
        progress->first_done = done;
    }
    if (!progress->tell || now - progress->begin_ms < PROGRESS_FIRST_MS ||
        now - progress->shown_ms < PROGRESS_EACH_MS)
        return;
    progress->shown_ms = now;
    if (now - progress->first_ms >= PROGRESS_EACH_MS && done > progress->first_done)
        rate = (double)(done - progress->first_done) * 1e3 / (double)(now - progress->first_ms);
    fprintf(stderr, "\r%s%s%s\033[K", name, name[0] != '\0' ? ": " : "",
            cli_progress_words(words, sizeof(words), progress->unit, done, count, rate));
}

/* gp_progress callback. A new activity restarts the rate measurement. */
static void progress_report(void *context, const char *activity, const char *unit, uint64_t done,
                            uint64_t count)
{
    cli_progress *progress = context;

    if (strncmp(progress->activity, activity, sizeof(progress->activity) - 1) != 0) {
        snprintf(progress->activity, sizeof(progress->activity), "%s", activity);
        progress->first_ms = 0;
    }
    progress->unit = unit;
    cli_progress_show(progress, activity, done, count);
}

gp_progress cli_progress_reports(cli_progress *progress)
{
    return (gp_progress){ progress_report, progress };
}

void cli_progress_end(const cli_progress *progress)
{
    if (progress->shown_ms != 0)
        fprintf(stderr, "\r\033[K");
}

char *cli_duration(double seconds, char *text, size_t bytes)
{
    if (seconds < 0.1)
        snprintf(text, bytes, "%.1f ms", seconds * 1e3);
    else if (seconds < 60)
        snprintf(text, bytes, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(text, bytes, (int)seconds % 60 == 0 ? "%d m" : "%d m %02d s", (int)(seconds / 60),
                 (int)seconds % 60);
    else
        snprintf(text, bytes, "%d h %02d m", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return text;
}

char *cli_bytes(double count, char *text, size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    int unit = 0;

    for (; count >= 1024 && unit < 4; unit++)
        count /= 1024;
    snprintf(text, bytes, unit == 0 ? "%.0f %s" : "%.1f %s", count, units[unit]);
    return text;
}

char *show_excluded(char *text, size_t bytes, uint64_t count, bool pixels, bool values)
{
    snprintf(text, bytes, "%" PRIu64 " %s%s without a %s", count,
             pixels   ? "pixel"
             : values ? "target"
                      : "sample",
             gp_plural(count), values ? "value" : "class");
    return text;
}

void show_csv_field(FILE *file, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;

    if (quoted)
        fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', file);
        fputc(*text, file);
    }
    if (quoted)
        fputc('"', file);
}
