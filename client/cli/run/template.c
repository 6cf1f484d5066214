/* Command templates with GNU parallel's replacement strings. The words are
 * searched for them for each job. */
#include "client/cli/run/template.h"

#include <ctype.h>
#include <inttypes.h>
#include <libgen.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* What a replacement string stands for: an input value, the job number, the slot number. */
typedef enum place_kind { PLACE_VALUE, PLACE_JOB, PLACE_SLOT } place_kind;

/* Parts of a value: all, without extension, base name, directory. */
typedef enum value_part { PART_ALL, PART_STEM, PART_BASE, PART_FOLDER } value_part;

enum { SOURCE_EACH = -1 }; /* source of {}: all inputs */

/* A replacement string in a word. */
typedef struct place {
    place_kind kind;
    int source; /* PLACE_VALUE: index of the input, or SOURCE_EACH */
    value_part part;
    const char *end; /* the closing brace */
} place;

struct cli_template {
    const char *const *words; /* borrowed */
    int word_count;
    const char *names[INPUTS_SOURCES_MAX]; /* input names; "": unnamed */
    int source_count;
    bool shell, has_place;
    gp_buffer text, line; /* filled words, NUL-terminated; result of template_line() */
    size_t filled;        /* words in `text` */
    const char **arguments;
    size_t argument_max;
};

/* ---- reading ---- */

/* Return the input for a {NAME} or {NUMBER}, counted from 0. -1: no such input. */
static int source_find(const cli_template *t, const char *inside, size_t bytes)
{
    int number = 0;

    for (int i = 0; i < t->source_count; i++)
        if (bytes > 0 && strlen(t->names[i]) == bytes && memcmp(t->names[i], inside, bytes) == 0)
            return i;
    for (size_t i = 0; i < bytes; i++) {
        if (!isdigit((unsigned char)inside[i]) || bytes > 2)
            return -1;
        number = number * 10 + (inside[i] - '0');
    }
    return number <= t->source_count ? number - 1 : -1;
}

/* Find the next replacement string in the text and return its opening brace. NULL: none. */
static const char *place_find(const cli_template *t, const char *at, place *out)
{
    static const struct {
        const char *text;
        place_kind kind;
        value_part part;
    } places[] = { { "", PLACE_VALUE, PART_ALL },   { ".", PLACE_VALUE, PART_STEM },
                   { "/", PLACE_VALUE, PART_BASE }, { "//", PLACE_VALUE, PART_FOLDER },
                   { "#", PLACE_JOB, PART_ALL },    { "%", PLACE_SLOT, PART_ALL } };

    for (; (at = strchr(at, '{')) != NULL && (out->end = strchr(at, '}')) != NULL; at++) {
        const size_t bytes = (size_t)(out->end - at) - 1;

        out->kind = PLACE_VALUE;
        out->part = PART_ALL;
        out->source = source_find(t, at + 1, bytes);
        if (out->source >= 0)
            return at;
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
            if (strlen(places[i].text) == bytes && memcmp(places[i].text, at + 1, bytes) == 0 &&
                (places[i].kind != PLACE_VALUE || t->source_count > 0)) {
                out->kind = places[i].kind;
                out->part = places[i].part;
                out->source = SOURCE_EACH;
                return at;
            }
    }
    return NULL;
}

gp_status template_new(cli_template **out, const char *const *words, int count, const char *const *names,
                       int name_count, bool shell, gp_error *err)
{
    cli_template *t = gp_calloc(1, sizeof(*t));
    place p;

    if (t == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command");
    t->words = words;
    t->word_count = count;
    for (; t->source_count < name_count; t->source_count++)
        t->names[t->source_count] = names[t->source_count];
    t->shell = shell;
    gp_buffer_init(&t->text, TEMPLATE_BYTES_MAX);
    gp_buffer_init(&t->line, 4 * TEMPLATE_BYTES_MAX); /* room for quotes */
    for (int i = 0; i < count; i++)
        for (const char *at = words[i]; (at = place_find(t, at, &p)) != NULL; at = p.end)
            t->has_place |= p.kind == PLACE_VALUE;
    *out = t;
    return GP_OK;
}

void template_free(cli_template *t)
{
    if (t == NULL)
        return;
    gp_buffer_deinit(&t->text);
    gp_buffer_deinit(&t->line);
    gp_free(t->arguments);
    gp_free(t);
}

bool template_has_place(const cli_template *t)
{
    return t->has_place;
}

/* ---- filling ---- */

/* Append the requested part of a value; quote it for the shell in shell mode. The rules are
 * those of GNU parallel, also for unusual paths. */
static gp_status value_put(cli_template *t, const char *value, value_part part, gp_error *err)
{
    char *copy = gp_strdup(value), *text = copy, *slash, *base;

    if (copy == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command");
    slash = strrchr(copy, '/');
    base = slash == NULL ? copy : slash + 1;
    if (part == PART_FOLDER)
        text = dirname(copy);
    else if (part == PART_BASE)
        text = base;
    else if (part == PART_STEM && strrchr(base, '.') != NULL)
        *strrchr(base, '.') = '\0';
    gp_status status = t->shell ? gp_buffer_shell_word(&t->text, text, err)
                                : gp_buffer_append(&t->text, text, strlen(text), err);

    gp_free(copy);
    return status;
}

/* End a word: by a blank in shell mode, else by a NUL. */
static gp_status word_end(cli_template *t, gp_error *err)
{
    t->filled += !t->shell;
    return gp_buffer_append(&t->text, t->shell ? " " : "", 1, err);
}

/* Append the text for a replacement string. With several inputs, a separate word {} becomes several
 * words. alone: the replacement string is a whole word */
static gp_status place_put(cli_template *t, const place *p, const char *const *values, uint64_t job,
                           uint32_t slot, bool alone, gp_error *err)
{
    gp_status status = GP_OK;

    if (p->kind != PLACE_VALUE)
        return gp_buffer_printf(&t->text, err, "%" PRIu64, p->kind == PLACE_JOB ? job : slot);
    if (p->source != SOURCE_EACH)
        return value_put(t, values[p->source], p->part, err);
    for (int i = 0; i < t->source_count && status == GP_OK; i++) {
        if (i > 0)
            status = alone ? word_end(t, err) : gp_buffer_append(&t->text, " ", 1, err);
        if (status == GP_OK)
            status = value_put(t, values[i], p->part, err);
    }
    return status;
}

/* Set up the argument vector. The pointers stay valid because the text does not grow any more. */
static gp_status arguments_point(cli_template *t, size_t words, gp_error *err)
{
    const char *at = gp_buffer_text(&t->text);
    size_t head = t->shell ? 2 : 0;

    if (words + head + 1 > t->argument_max) {
        const char **grown = gp_realloc_array(t->arguments, words + head + 1, sizeof(*grown));

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a command");
        t->arguments = grown;
        t->argument_max = words + head + 1;
    }
    if (t->shell) {
        t->arguments[0] = "/bin/sh";
        t->arguments[1] = "-c";
    }
    for (size_t i = 0; i < words; i++, at += strlen(at) + 1)
        t->arguments[head + i] = at;
    t->arguments[head + words] = NULL;
    return GP_OK;
}

gp_status template_fill(cli_template *t, const char *const *values, uint64_t job, uint32_t slot,
                        const char *const **arguments, gp_error *err)
{
    static const place all = { .kind = PLACE_VALUE, .source = SOURCE_EACH };
    gp_status status = GP_OK;
    place p;

    gp_buffer_clear(&t->text);
    t->filled = 0;
    for (int i = 0; i < t->word_count && status == GP_OK; i++) {
        const char *word = t->words[i], *at = word, *found;

        if (i > 0)
            status = word_end(t, err);
        for (; status == GP_OK && (found = place_find(t, at, &p)) != NULL; at = p.end + 1) {
            status = gp_buffer_append(&t->text, at, (size_t)(found - at), err);
            if (status == GP_OK)
                status = place_put(t, &p, values, job, slot, found == word && p.end[1] == '\0', err);
        }
        if (status == GP_OK)
            status = gp_buffer_append(&t->text, at, strlen(at), err);
    }
    if (status == GP_OK && !t->has_place && t->source_count > 0) {
        status = word_end(t, err);
        if (status == GP_OK)
            status = place_put(t, &all, values, job, slot, true, err);
    }
    if (status == GP_OK)
        status = gp_buffer_append(&t->text, "", 1, err);
    if (status == GP_ELIMIT)
        return gp_fail(err, GP_ELIMIT, "the command of job %" PRIu64 " is longer than %d MiB", job,
                       TEMPLATE_BYTES_MAX >> 20);
    if (status == GP_OK)
        status = arguments_point(t, t->shell ? 1 : t->filled + 1, err);
    if (status == GP_OK)
        *arguments = t->arguments;
    return status;
}

gp_status template_line(cli_template *t, const char **line, gp_error *err)
{
    gp_status status = GP_OK;

    if (t->shell) {
        *line = t->arguments[2];
        return GP_OK;
    }
    gp_buffer_clear(&t->line);
    for (size_t i = 0; t->arguments[i] != NULL && status == GP_OK; i++) {
        if (i > 0)
            status = gp_buffer_append(&t->line, " ", 1, err);
        if (status == GP_OK)
            status = gp_buffer_shell_word(&t->line, t->arguments[i], err);
    }
    if (status == GP_OK)
        *line = gp_buffer_text(&t->line);
    return status;
}
