/* Command templates with GNU parallel's replacement strings. A template is parsed once into pieces
 * and filled in for each job. */
#include "client/cli/run/template.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* Piece kinds: literal text, input value, job number, slot number. */
typedef enum piece_kind { PIECE_TEXT, PIECE_VALUE, PIECE_JOB, PIECE_PLACE } piece_kind;

/* Parts of a value: all, without extension, base name, directory. */
typedef enum value_part { PART_ALL, PART_STEM, PART_BASE, PART_FOLDER } value_part;

enum { SOURCE_EACH = -1 }; /* source of {}: all inputs */

/* Part of a word. A word consists of one or more pieces. */
typedef struct piece {
    piece_kind kind;
    bool last;        /* the word ends after this piece */
    const char *text; /* PIECE_TEXT: borrowed */
    size_t bytes;
    int source; /* PIECE_VALUE: index of the input, or SOURCE_EACH */
    value_part part;
} piece;

struct cli_template {
    bool shell, has_place;
    int source_count;
    piece *pieces;
    size_t piece_count;
    gp_buffer text, line; /* filled words, NUL-terminated; result of template_line() */
    const char **arguments;
    size_t argument_max;
};

/* ---- reading ---- */

static gp_status piece_add(cli_template *t, piece p, gp_error *err)
{
    piece *grown = gp_array_grow(t->pieces, t->piece_count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command");
    t->pieces = grown;
    t->pieces[t->piece_count++] = p;
    return GP_OK;
}

/* Return the input for a {NAME} or {NUMBER}, counted from 0. -1: no such input. */
static int source_find(const char *inside, size_t bytes, const char *const *names, int name_count)
{
    int number = 0;

    for (int i = 0; i < name_count; i++)
        if (bytes > 0 && strlen(names[i]) == bytes && memcmp(names[i], inside, bytes) == 0)
            return i;
    for (size_t i = 0; i < bytes; i++) {
        if (!isdigit((unsigned char)inside[i]) || bytes > 2)
            return -1;
        number = number * 10 + (inside[i] - '0');
    }
    return number <= name_count ? number - 1 : -1;
}

/* Parse the text between braces. false: not a replacement string. */
static bool place_read(piece *out, const char *inside, size_t bytes, const char *const *names, int name_count)
{
    static const struct {
        const char *text;
        piece_kind kind;
        value_part part;
    } places[] = { { "", PIECE_VALUE, PART_ALL },   { ".", PIECE_VALUE, PART_STEM },
                   { "/", PIECE_VALUE, PART_BASE }, { "//", PIECE_VALUE, PART_FOLDER },
                   { "#", PIECE_JOB, PART_ALL },    { "%", PIECE_PLACE, PART_ALL } };

    *out = (piece){ .kind = PIECE_VALUE, .source = SOURCE_EACH };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (strlen(places[i].text) == bytes && memcmp(places[i].text, inside, bytes) == 0) {
            out->kind = places[i].kind;
            out->part = places[i].part;
            return out->kind != PIECE_VALUE || name_count > 0;
        }
    out->source = source_find(inside, bytes, names, name_count);
    return out->source >= 0;
}

/* Split a word into pieces. *found is set to true if the word refers to an input value. */
static gp_status word_read(cli_template *t, const char *word, const char *const *names, int name_count,
                           bool *found, gp_error *err)
{
    const char *begin = word, *at = word;
    gp_status status = GP_OK;

    while (*at != '\0' && status == GP_OK) {
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        piece p;

        if (end == NULL || !place_read(&p, at + 1, (size_t)(end - at) - 1, names, name_count)) {
            at++;
            continue;
        }
        *found |= p.kind == PIECE_VALUE;
        if (at > begin)
            status = piece_add(t, (piece){ .text = begin, .bytes = (size_t)(at - begin) }, err);
        if (status == GP_OK)
            status = piece_add(t, p, err);
        begin = at = end + 1;
    }
    if (status == GP_OK && (at > begin || *word == '\0'))
        status = piece_add(t, (piece){ .text = begin, .bytes = (size_t)(at - begin) }, err);
    return status;
}

/* Split all words into pieces. If no word refers to an input, append the values to the command. */
static gp_status words_read(cli_template *t, const char *const *words, int count, const char *const *names,
                            int name_count, gp_error *err)
{
    bool found = name_count == 0;
    gp_status status = GP_OK;

    for (int i = 0; i < count && status == GP_OK; i++) {
        if (i > 0 && t->shell)
            status = piece_add(t, (piece){ .text = " ", .bytes = 1 }, err);
        if (status == GP_OK)
            status = word_read(t, words[i], names, name_count, &found, err);
        if (status == GP_OK && !t->shell)
            t->pieces[t->piece_count - 1].last = true;
    }
    t->has_place = found && name_count > 0;
    if (status == GP_OK && !found && t->shell)
        status = piece_add(t, (piece){ .text = " ", .bytes = 1 }, err);
    if (status == GP_OK && !found)
        status = piece_add(t, (piece){ .kind = PIECE_VALUE, .source = SOURCE_EACH }, err);
    if (status == GP_OK && t->piece_count > 0)
        t->pieces[t->piece_count - 1].last = true;
    return status;
}

gp_status template_new(cli_template **out, const char *const *words, int count, const char *const *names,
                       int name_count, bool shell, gp_error *err)
{
    cli_template *t = gp_calloc(1, sizeof(*t));

    if (t == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command");
    t->shell = shell;
    t->source_count = name_count;
    gp_buffer_init(&t->text, TEMPLATE_BYTES_MAX);
    gp_buffer_init(&t->line, 4 * TEMPLATE_BYTES_MAX); /* room for quotes */
    gp_status status = words_read(t, words, count, names, name_count, err);

    if (status != GP_OK) {
        template_free(t);
        return status;
    }
    *out = t;
    return GP_OK;
}

void template_free(cli_template *t)
{
    if (t == NULL)
        return;
    gp_buffer_deinit(&t->text);
    gp_buffer_deinit(&t->line);
    gp_free(t->pieces);
    gp_free(t->arguments);
    gp_free(t);
}

bool template_has_place(const cli_template *t)
{
    return t->has_place;
}

/* ---- quoting ---- */

gp_status shell_quote(gp_buffer *out, const char *word, gp_error *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    gp_status status = GP_OK;

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0')
        return gp_buffer_append(out, word, strlen(word), err);
    status = gp_buffer_append(out, "'", 1, err);
    while (*word != '\0' && status == GP_OK) {
        size_t bytes = strcspn(word, "'");

        status = gp_buffer_append(out, word, bytes, err);
        word += bytes;
        if (status == GP_OK && *word == '\'') {
            status = gp_buffer_append(out, "'\\''", 4, err);
            word++;
        }
    }
    return status == GP_OK ? gp_buffer_append(out, "'", 1, err) : status;
}

/* ---- filling ---- */

/* Cut a value to its directory, like dirname(); ".": the value has none. */
static void value_folder(const char **text, size_t *bytes)
{
    const char *value = *text;
    size_t end = strlen(value);

    while (end > 1 && value[end - 1] == '/')
        end--;
    while (end > 0 && value[end - 1] != '/')
        end--;
    while (end > 1 && value[end - 1] == '/')
        end--;
    *text = end == 0 ? "." : value;
    *bytes = end == 0 ? 1 : end;
}

/* Cut a value to the requested part. The rules are those of GNU parallel, also for unusual
 * paths. */
static void value_cut(const char **text, size_t *bytes, value_part part)
{
    const char *slash = strrchr(*text, '/'), *base = slash == NULL ? *text : slash + 1;
    const char *point = strrchr(base, '.');

    if (part == PART_FOLDER) {
        value_folder(text, bytes);
    } else if (part == PART_BASE) {
        *text = base;
        *bytes = strlen(base);
    } else if (part == PART_STEM && point != NULL) {
        *bytes = (size_t)(point - *text);
    }
}

/* Append the requested part of a value; quote it for the shell in shell mode. */
static gp_status value_put(cli_template *t, const char *value, value_part part, gp_error *err)
{
    size_t bytes = strlen(value);

    value_cut(&value, &bytes, part);
    if (!t->shell)
        return gp_buffer_append(&t->text, value, bytes, err);
    char *cut = gp_malloc(bytes + 1);

    if (cut == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command");
    memcpy(cut, value, bytes);
    cut[bytes] = '\0';
    gp_status status = shell_quote(&t->text, cut, err);

    gp_free(cut);
    return status;
}

/* Append a piece. {} with several inputs becomes several words if it is a word of its own.
 *   alone  the piece is a whole word
 *   words  incremented for each word that ends within the piece */
static gp_status piece_put(cli_template *t, const piece *p, const char *const *values, uint64_t job,
                           uint32_t place, bool alone, size_t *words, gp_error *err)
{
    gp_status status = GP_OK;

    switch (p->kind) {
    case PIECE_TEXT:
        return gp_buffer_append(&t->text, p->text, p->bytes, err);
    case PIECE_JOB:
        return gp_buffer_printf(&t->text, err, "%" PRIu64, job);
    case PIECE_PLACE:
        return gp_buffer_printf(&t->text, err, "%" PRIu32, place);
    case PIECE_VALUE:
        break;
    }
    if (p->source != SOURCE_EACH)
        return value_put(t, values[p->source], p->part, err);
    for (int i = 0; i < t->source_count && status == GP_OK; i++) {
        if (i > 0 && alone && !t->shell) {
            status = gp_buffer_append(&t->text, "", 1, err);
            ++*words;
        } else if (i > 0) {
            status = gp_buffer_append(&t->text, " ", 1, err);
        }
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

gp_status template_fill(cli_template *t, const char *const *values, uint64_t job, uint32_t place,
                        const char *const **arguments, gp_error *err)
{
    size_t words = 0;
    gp_status status = GP_OK;
    bool first = true;

    gp_buffer_clear(&t->text);
    for (size_t i = 0; i < t->piece_count && status == GP_OK; i++) {
        const piece *p = &t->pieces[i];

        status = piece_put(t, p, values, job, place, first && p->last, &words, err);
        first = p->last;
        if (status == GP_OK && p->last) {
            status = gp_buffer_append(&t->text, "", 1, err);
            words++;
        }
    }
    if (status == GP_ELIMIT)
        return gp_fail(err, GP_ELIMIT, "the command of job %" PRIu64 " is longer than %d MiB", job,
                       TEMPLATE_BYTES_MAX >> 20);
    if (status == GP_OK)
        status = arguments_point(t, words, err);
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
            status = shell_quote(&t->line, t->arguments[i], err);
    }
    if (status == GP_OK)
        *line = gp_buffer_text(&t->line);
    return status;
}
