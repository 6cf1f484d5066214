/* parfor inputs. Ranges use decimal fixed-point numbers, so 0:0.1:1 has exact values. */
#include "client/cli/run/inputs.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"

enum {
    DECIMALS_MAX = 9,
    /* characters of a number scaled to DECIMALS_MAX decimals; fits 63 bits */
    NUMBER_BYTES_MAX = 18,
    READ_BYTES = 64 << 10, /* input file read size */
};

typedef enum source_kind { SOURCE_RANGE, SOURCE_LIST, SOURCE_FILE } source_kind;

/* A source of values: a range, a list, or the input file. */
typedef struct source {
    source_kind kind;
    char name[INPUTS_NAME_BYTES_MAX];
    uint64_t count, at; /* value count, and current value index */
    /* SOURCE_RANGE: value = first + i * step, in units of 10^-decimals */
    int64_t first, step;
    int decimals;
    char number[48]; /* current value as text */
    /* SOURCE_LIST */
    char *text;        /* values, each terminated by NUL */
    const char **list; /* pointers into `text` */
} source;

struct cli_inputs {
    source sources[INPUTS_SOURCES_MAX];
    int source_count;
    const char *values[INPUTS_SOURCES_MAX]; /* current combination */
    bool begun, ended; /* the first combination was returned; there are no more combinations */
    /* SOURCE_FILE */
    int fd;
    bool fd_ours, fd_ended; /* fd_ours: close the descriptor; fd_ended: end of file was read */
    char separator;
    gp_buffer read; /* bytes read but not returned yet, from offset `used` */
    size_t used;
    const char *line; /* current value, in `read` */
    uint64_t line_number;
};

/* ---- ranges ---- */

/* Scan a decimal number such as "-12.50". Return the position after it; NULL: not a number.
 *   decimals  set to the digit count after the point */
static const char *number_scan(const char *text, int *decimals)
{
    const char *at = text + (*text == '-'), *point;
    const char *begin = at;

    while (isdigit((unsigned char)*at))
        at++;
    if (at == begin)
        return NULL;
    *decimals = 0;
    if (*at == '.' && isdigit((unsigned char)at[1])) {
        for (point = at++; isdigit((unsigned char)*at); at++)
            ;
        *decimals = (int)(at - point) - 1;
    }
    return at;
}

/* Return the number times 10^decimals. It must have at most `decimals` decimals. */
static int64_t number_scale(const char *text, const char *end, int decimals)
{
    int64_t value = 0;
    bool negative = *text == '-', behind = false;

    for (const char *at = text + negative; at < end; at++) {
        if (*at == '.') {
            behind = true;
            continue;
        }
        value = value * 10 + (*at - '0');
        decimals -= behind;
    }
    while (decimals-- > 0)
        value *= 10;
    return negative ? -value : value;
}

/* Scan a range: two or three numbers separated by colons. Return how many; 0: not a range.
 *   decimals  set to the largest number of decimals */
static int range_scan(const char *text, const char *begins[3], const char *ends[3], int *decimals)
{
    const char *at = text;
    int count = 0;

    *decimals = 0;
    while (count < 3) {
        int own;

        begins[count] = at;
        at = number_scan(at, &own);
        if (at == NULL)
            return 0;
        ends[count++] = at;
        if (own > *decimals)
            *decimals = own;
        if (*at == '\0')
            return count >= 2 ? count : 0;
        if (*at++ != ':')
            return 0;
    }
    return 0;
}

/* Initialize a range. GP_EINVAL: the step is 0 or has the wrong sign. GP_ELIMIT: too many
 * digits. */
static gp_status range_fill(source *s, const char *text, gp_error *err)
{
    const char *begins[3], *ends[3];
    int count = range_scan(text, begins, ends, &s->decimals);
    int64_t last;

    s->kind = SOURCE_RANGE;
    for (int i = 0; i < count; i++)
        if (ends[i] - begins[i] + s->decimals > NUMBER_BYTES_MAX || s->decimals > DECIMALS_MAX)
            return gp_fail(err, GP_ELIMIT, "the range %.60s has numbers with too many digits", text);
    s->first = number_scale(begins[0], ends[0], s->decimals);
    last = number_scale(begins[count - 1], ends[count - 1], s->decimals);
    s->step =
        count == 3 ? number_scale(begins[1], ends[1], s->decimals) : number_scale("1", "1" + 1, s->decimals);
    if (s->step == 0)
        return gp_fail(err, GP_EINVAL, "the range %.60s has a step of 0", text);
    if (s->first != last && (s->first < last) != (s->step > 0))
        return gp_fail(err, GP_EINVAL,
                       "the range %.60s is empty; to count down, write FIRST:STEP:LAST with a step below 0",
                       text);
    s->count = ((uint64_t)(s->step > 0 ? last - s->first : s->first - last)) /
                   (uint64_t)(s->step > 0 ? s->step : -s->step) +
               1;
    return GP_OK;
}

/* ---- lists ---- */

static gp_status list_fill(source *s, const char *text, gp_error *err)
{
    size_t count = 1;

    s->kind = SOURCE_LIST;
    for (const char *at = text; *at != '\0'; at++)
        count += *at == ',';
    if (count > INPUTS_LIST_MAX)
        return gp_fail(err, GP_ELIMIT, "a list of %zu values; the maximum is %d, use --arg-file for more",
                       count, INPUTS_LIST_MAX);
    s->text = gp_strdup(text);
    s->list = gp_calloc(count, sizeof(*s->list));
    if (s->text == NULL || s->list == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of %zu values", count);
    for (char *at = s->text; s->count < count; at += strlen(at) + 1) {
        at[strcspn(at, ",")] = '\0';
        s->list[s->count++] = at;
    }
    return GP_OK;
}

/* ---- words ---- */

/* Parse one input word and add the source. */
static gp_status word_add(cli_inputs *inputs, const char *word, gp_error *err)
{
    source *s = &inputs->sources[inputs->source_count];
    const char *begins[3], *ends[3], *text;
    size_t length = 0; /* of NAME in "NAME=..."; 0: no valid name */
    int decimals;

    if (inputs->source_count == INPUTS_SOURCES_MAX)
        return gp_fail(err, GP_ELIMIT, "more than %d inputs", INPUTS_SOURCES_MAX);
    if (isalpha((unsigned char)word[0]) || word[0] == '_')
        while (isalnum((unsigned char)word[length]) || word[length] == '_' || word[length] == '-')
            length++;
    length = word[length] == '=' ? length : 0;
    *s = (source){ 0 };
    if (length >= sizeof(s->name))
        return gp_fail(err, GP_ELIMIT, "the name of an input is longer than %zu bytes: %.80s",
                       sizeof(s->name) - 1, word);
    memcpy(s->name, word, length);
    for (int i = 0; i < inputs->source_count; i++)
        if (length > 0 && strcmp(inputs->sources[i].name, s->name) == 0)
            return gp_fail(err, GP_EINVAL, "duplicate input %s", s->name);
    inputs->source_count++; /* inputs_free() frees the source from here on */
    text = length > 0 ? word + length + 1 : word;
    if (range_scan(text, begins, ends, &decimals) != 0)
        return range_fill(s, text, err);
    if (length == 0 && text[0] == '\0')
        return gp_fail(err, GP_EINVAL,
                       "an input is empty; give FIRST:LAST, FIRST:STEP:LAST, a,b,c or NAME=a,b,c");
    if (length == 0 && strchr(text, ':') != NULL && text[strspn(text, "0123456789.:-")] == '\0')
        return gp_fail(err, GP_EINVAL, "the input '%.60s' is not a range; give FIRST:LAST or FIRST:STEP:LAST",
                       text);
    return list_fill(s, text, err);
}

gp_status inputs_new(cli_inputs **out, const char *const *words, int count, const char *file, bool null_ended,
                     gp_error *err)
{
    cli_inputs *inputs = gp_calloc(1, sizeof(*inputs));
    gp_status status = GP_OK;

    if (inputs == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for inputs");
    inputs->fd = -1;
    gp_buffer_init(&inputs->read, INPUTS_VALUE_BYTES_MAX + 2 * READ_BYTES);
    if (file != NULL) { /* the first source; values are read on demand */
        inputs->sources[inputs->source_count++] = (source){ .kind = SOURCE_FILE };
        inputs->separator = null_ended ? '\0' : '\n';
        inputs->fd = strcmp(file, "-") == 0 ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
        inputs->fd_ours = inputs->fd != STDIN_FILENO;
        status = inputs->fd >= 0 ? gp_buffer_reserve(&inputs->read, READ_BYTES, err)
                                 : gp_fail_errno(err, GP_EIO, "cannot read --arg-file %s", file);
    }
    for (int i = 0; i < count && status == GP_OK; i++)
        status = word_add(inputs, words[i], err);
    if (status == GP_OK && inputs->source_count == 0)
        status = gp_fail(err, GP_EINVAL, "the input is missing; give FIRST:LAST, NAME=a,b,c or --arg-file");
    if (status != GP_OK) {
        inputs_free(inputs);
        return status;
    }
    *out = inputs;
    return GP_OK;
}

void inputs_free(cli_inputs *inputs)
{
    if (inputs == NULL)
        return;
    for (int i = 0; i < inputs->source_count; i++) {
        gp_free(inputs->sources[i].text);
        gp_free(inputs->sources[i].list);
    }
    if (inputs->fd_ours && inputs->fd >= 0)
        close(inputs->fd);
    gp_buffer_deinit(&inputs->read);
    gp_free(inputs);
}

int inputs_sources(const cli_inputs *inputs)
{
    return inputs == NULL ? 0 : inputs->source_count;
}

const char *inputs_name(const cli_inputs *inputs, int at)
{
    return inputs->sources[at].name;
}

uint64_t inputs_count(const cli_inputs *inputs)
{
    uint64_t product = 1;

    for (int i = 0; i < inputs->source_count; i++)
        if (inputs->sources[i].kind == SOURCE_FILE ||
            __builtin_mul_overflow(product, inputs->sources[i].count, &product))
            return UINT64_MAX;
    return product;
}

int inputs_fd(const cli_inputs *inputs)
{
    return inputs->fd_ended ? -1 : inputs->fd;
}

/* ---- the file ---- */

/* Get the file's next value without blocking. The last value needs no separator. */
static gp_status file_next(cli_inputs *inputs, inputs_state *state, gp_error *err)
{
    gp_buffer *read_ahead = &inputs->read;

    for (;;) {
        char *begin = (char *)read_ahead->data + inputs->used;
        size_t left = read_ahead->bytes - inputs->used;
        const char *end = memchr(begin, inputs->separator, left);
        size_t bytes = end != NULL ? (size_t)(end - begin) : left;

        if (bytes >= INPUTS_VALUE_BYTES_MAX)
            return gp_fail(err, GP_ELIMIT,
                           "input %" PRIu64 " is longer than %d bytes, the maximum for one argument",
                           inputs->line_number + 1, INPUTS_VALUE_BYTES_MAX - 1);
        if (end != NULL || (inputs->fd_ended && left > 0)) {
            *state = INPUTS_VALUES;
            begin[bytes] = '\0';
            inputs->line = begin;
            inputs->line_number++;
            inputs->used += bytes + (end != NULL);
            return strlen(begin) == bytes
                       ? GP_OK
                       : gp_fail(err, GP_EINVAL, "input %" PRIu64 " has a zero byte; use --null",
                                 inputs->line_number);
        }
        *state = inputs->fd_ended ? INPUTS_END : INPUTS_WAIT;
        if (inputs->fd_ended || poll(&(struct pollfd){ .fd = inputs->fd, .events = POLLIN }, 1, 0) <= 0)
            return GP_OK;
        /* read once, as much as is available */
        memmove(read_ahead->data, begin, left);
        read_ahead->bytes = left;
        inputs->used = 0;
        gp_status status = gp_buffer_reserve(read_ahead, READ_BYTES, err);

        if (status != GP_OK)
            return status;
        ssize_t got = read(inputs->fd, read_ahead->data + left, READ_BYTES);

        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return gp_fail_errno(err, GP_EIO, "cannot read the inputs");
        read_ahead->bytes += got > 0 ? (size_t)got : 0;
        inputs->fd_ended = got == 0;
    }
}

/* ---- combinations ---- */

gp_status inputs_next(cli_inputs *inputs, inputs_state *state, const char *const **values, gp_error *err)
{
    bool line = inputs->sources[0].kind == SOURCE_FILE && !inputs->begun; /* a line of the file is needed */
    int i = inputs->source_count;

    /* Advance to the next combination, like a counter whose last digit moves first. */
    while (inputs->begun && !inputs->ended && i-- > 0) {
        source *s = &inputs->sources[i];

        line = s->kind == SOURCE_FILE;
        if (line || ++s->at < s->count)
            break;
        s->at = 0;
        inputs->ended = i == 0;
    }
    *state = INPUTS_VALUES;
    if (line && !inputs->ended) {
        gp_status status = file_next(inputs, state, err);

        if (status == GP_OK && *state == INPUTS_WAIT)
            /* the other sources are at their first values; only the file is pending */
            inputs->begun = false;
        if (status != GP_OK || *state != INPUTS_VALUES)
            return status;
    }
    if (inputs->ended)
        *state = INPUTS_END;
    inputs->begun = true;
    for (i = 0; i < inputs->source_count; i++) {
        source *s = &inputs->sources[i];

        inputs->values[i] = s->kind == SOURCE_FILE ? inputs->line : s->number;
        if (s->kind == SOURCE_LIST)
            inputs->values[i] = s->list[s->at];
        if (s->kind != SOURCE_RANGE)
            continue;
        /* all values of a range have the same number of decimals */
        int64_t value = s->first + (int64_t)s->at * s->step, scale = 1;
        uint64_t size = (uint64_t)(value < 0 ? -value : value);
        const int decimals = s->decimals;

        assert(decimals >= 0 && decimals <= DECIMALS_MAX); /* without it, gcc warns about %0* below */
        for (int k = 0; k < decimals; k++)
            scale *= 10;
        int used = snprintf(s->number, sizeof(s->number), "%s%" PRIu64, value < 0 ? "-" : "",
                            size / (uint64_t)scale);

        if (decimals > 0)
            snprintf(s->number + used, sizeof(s->number) - (size_t)used, ".%0*" PRIu64, decimals,
                     size % (uint64_t)scale);
    }
    *values = inputs->values;
    return GP_OK;
}
