/* CSV parser. Rows are cut out of the text in place: a NUL replaces each separator. */
#include "common/data/format/csv.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

void gp_csv_init(gp_csv *csv, const char *name, char *text, size_t bytes)
{
    *csv = (gp_csv){ .name = name, .text = text, .bytes = bytes, .line = 1 };
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        csv->at = 3;
}

gp_status gp_csv_open(gp_csv *csv, const char *path, gp_error *err)
{
    uint8_t *text;
    size_t bytes;
    gp_status status = gp_file_read(&text, &bytes, path, GP_CSV_BYTES_MAX, err);

    if (status == GP_OK)
        gp_csv_init(csv, path, (char *)text, bytes);
    return status;
}

void gp_csv_close(gp_csv *csv)
{
    gp_free(csv->text);
    csv->text = NULL;
}

/* Unquote a field in place. On success csv->at is behind the closing quote. */
static gp_status quoted_take(gp_csv *csv, char **field, gp_error *err)
{
    char *to = csv->text + ++csv->at;
    uint32_t line = csv->line;

    *field = to;
    for (;; csv->at++) {
        char c = csv->text[csv->at];

        if (csv->at == csv->bytes)
            return gp_fail(err, GP_ECORRUPT, "%s: line %u has a quote without a closing quote", csv->name,
                           line);
        if (c == '"' && csv->text[csv->at + 1] != '"')
            break;
        csv->at += c == '"';
        csv->line += c == '\n';
        *to++ = c;
    }
    csv->at++;
    if (csv->at < csv->bytes && strchr(",\r\n", csv->text[csv->at]) == NULL)
        return gp_fail(err, GP_ECORRUPT,
                       "%s: text follows the closing quote in line %u; write a quote in a quoted field twice",
                       csv->name, csv->line);
    *to = '\0'; /* overwrites the closing quote, or an earlier byte if quotes were doubled */
    return GP_OK;
}

/* Take one field and the separator that follows. *last: the field was the last in the row. */
static gp_status field_take(gp_csv *csv, char **field, bool *last, gp_error *err)
{
    char *end;

    if (csv->text[csv->at] == '"') {
        gp_status status = quoted_take(csv, field, err);

        if (status != GP_OK)
            return status;
    } else {
        *field = csv->text + csv->at;
        csv->at += strcspn(*field, ",\n");
        if (csv->text[csv->at] != ',' && csv->text + csv->at > *field && csv->text[csv->at - 1] == '\r')
            csv->text[csv->at - 1] = '\0';
    }
    if (csv->text[csv->at] == '\r' && csv->text[csv->at + 1] == '\n')
        csv->at++;
    if (csv->text[csv->at] == '\0' && csv->at < csv->bytes)
        return gp_fail(err, GP_ECORRUPT, "%s: line %u contains a NUL byte; it must be a text file", csv->name,
                       csv->line);
    *last = csv->text[csv->at] != ',';
    csv->line += csv->text[csv->at] == '\n';
    end = csv->text + csv->at;
    csv->at += csv->at < csv->bytes;
    *end = '\0';
    return GP_OK;
}

gp_status gp_csv_next(gp_csv *csv, gp_csv_row *row, gp_error *err)
{
    bool last = false;

    row->count = 0;
    while (csv->text[csv->at] == '\n' || (csv->text[csv->at] == '\r' && csv->text[csv->at + 1] == '\n')) {
        csv->line += csv->text[csv->at] == '\n';
        csv->at++;
    }
    row->line = csv->line;
    row->first = !csv->any;
    if (csv->at == csv->bytes)
        return GP_OK;
    csv->any = true;
    while (!last) {
        gp_status status;

        if (row->count == GP_CSV_FIELDS_MAX)
            return gp_fail(err, GP_ELIMIT, "%s: line %u has more than %d fields", csv->name, row->line,
                           GP_CSV_FIELDS_MAX);
        status = field_take(csv, &row->fields[row->count], &last, err);
        if (status != GP_OK)
            return status;
        row->count++;
    }
    return GP_OK;
}
