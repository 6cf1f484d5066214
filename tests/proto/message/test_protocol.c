/* Compare PROTOCOL.md with the field tables: id, direction, type and range of each message and
 * field.
 *
 * `test_protocol --rows` prints the expected sections and rows without the last column. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/message/messages.h"

static const char *direction_text(gp_direction direction)
{
    static const char *const texts[] = {
        "any to any",          "client to scheduler", "scheduler to client", "worker to scheduler",
        "scheduler to worker", "client to worker",    "worker to client",
    };

    return texts[direction];
}

static const char *table_name(const gp_field *fields)
{
    return fields == gp_slot_fields           ? "slot"
           : fields == gp_worker_row_fields   ? "worker row"
           : fields == gp_lease_row_fields    ? "lease row"
           : fields == gp_job_row_fields      ? "job row"
           : fields == gp_lease_member_fields ? "lease member"
                                              : "train record";
}

static void unsigned_text(char *out, size_t bytes, uint64_t min, uint64_t max)
{
    if (max == UINT64_MAX && min == 0)
        snprintf(out, bytes, "any");
    else if (max == UINT64_MAX)
        snprintf(out, bytes, "from %" PRIu64, min);
    else
        snprintf(out, bytes, "%" PRIu64 " to %" PRIu64, min, max);
}

/* Format a table row, for example "| `first` | u64 | 0 to 1099511627776 |". */
static void row_format(char *out, size_t bytes, const gp_field *field)
{
    static const char *const kinds[] = { "",    "bool", "u32",  "status", "u64", "i32",
                                         "i64", "f64",  "text", "bin",    "map", "list" };
    char range[160] = "";

    switch (field->kind) {
    case GP_KIND_U32:
    case GP_KIND_U64:
        unsigned_text(range, sizeof(range), field->umin, field->umax);
        break;
    case GP_KIND_STATUS:
        snprintf(range, sizeof(range), "known, from %" PRIu64, field->umin);
        break;
    case GP_KIND_I32:
    case GP_KIND_I64:
        snprintf(range, sizeof(range), "%" PRId64 " to %" PRId64, field->imin, field->imax);
        break;
    case GP_KIND_F64:
        if (field->special == GP_ANY_FLOAT)
            snprintf(range, sizeof(range), "any, NaN and infinities too");
        else
            snprintf(range, sizeof(range), "%.15g to %.15g%s", field->fmin, field->fmax,
                     field->special == GP_OR_NAN ? ", or NaN" : "");
        break;
    case GP_KIND_TEXT:
        snprintf(range, sizeof(range), "at most %zu bytes", field->size - 1);
        break;
    case GP_KIND_BIN16:
        snprintf(range, sizeof(range), "16 bytes");
        break;
    case GP_KIND_STRUCT:
        snprintf(range, sizeof(range), "a %s", table_name(field->fields));
        break;
    case GP_KIND_LIST:
        snprintf(range, sizeof(range), "at most %" PRIu32 " of %s", field->count_max,
                 table_name(field->fields));
        break;
    case GP_KIND_BOOL:
    case GP_KIND_END:
        break;
    }
    if (field->optional)
        snprintf(range + strlen(range), sizeof(range) - strlen(range), "; optional, %" PRIu64,
                 field->fallback);
    snprintf(out, bytes, "| `%s` | %s | %s |", field->name, kinds[field->kind], range);
}

static char document[1 << 18];
static unsigned missing;

/* Return a copy of the section below `heading`, up to the next heading; NULL: no such section. */
static char *section_find(const char *heading)
{
    char wanted[200];

    snprintf(wanted, sizeof(wanted), "\n%s\n", heading);
    char *start = strstr(document, wanted);

    if (start == NULL)
        return NULL;
    start += strlen(wanted);
    char *end = strstr(start, "\n#");

    return strndup(start, end == NULL ? strlen(start) : (size_t)(end - start));
}

static void section_check(const char *heading, const gp_field *fields, int write)
{
    char row[400];
    char *section = write ? NULL : section_find(heading);

    if (write)
        printf("%s\n\n", heading);
    else if (section == NULL) {
        printf("FAIL no section '%s'\n", heading);
        missing++;
        return;
    }
    for (const gp_field *field = fields; field->kind != GP_KIND_END; field++) {
        row_format(row, sizeof(row), field);
        if (write) {
            printf("%s\n", row);
        } else if (strstr(section, row) == NULL) {
            printf("FAIL section '%s' has no row %s\n", heading, row);
            missing++;
        }
    }
    if (write)
        printf("\n");
    free(section);
}

static void status_check(int write)
{
    static const struct {
        int number;
        const char *name, *text;
    } rows[] = {
#define X(code, number, text) { number, #code, text },
#include "common/base/status.def"
#undef X
    };
    char row[300];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(row, sizeof(row), "| %d | %s | %s |\n", rows[i].number, rows[i].name, rows[i].text);
        if (write) {
            printf("%s", row);
        } else if (strstr(document, row) == NULL) {
            printf("FAIL no row %s", row);
            missing++;
        }
    }
}

int main(int count, char **arguments)
{
    int write = count > 1 && strcmp(arguments[1], "--rows") == 0;
    static const gp_field *const tables[] = { gp_slot_fields,      gp_worker_row_fields,
                                              gp_lease_row_fields, gp_train_record_fields,
                                              gp_job_row_fields,   gp_lease_member_fields };
    const char *dir = getenv("GP_SOURCE_DIR");
    char path[1024], heading[200];
    size_t type_count;
    const gp_message_type *const *types = gp_message_all(&type_count);

    snprintf(path, sizeof(path), "%s/proto/PROTOCOL.md", dir != NULL ? dir : ".");
    FILE *file = fopen(path, "r");
    size_t bytes = file == NULL ? 0 : fread(document, 1, sizeof(document) - 1, file);

    if (file != NULL)
        fclose(file);
    if (bytes == 0 && !write) {
        printf("FAIL cannot read %s\n", path);
        return 1;
    }
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        snprintf(heading, sizeof(heading), "### %s", table_name(tables[i]));
        section_check(heading, tables[i], write);
    }
    for (size_t i = 0; i < type_count; i++) {
        snprintf(heading, sizeof(heading), "### %u %s, %s", types[i]->id, types[i]->name,
                 direction_text(types[i]->direction));
        section_check(heading, types[i]->fields, write);
    }
    status_check(write);
    if (!write)
        printf("%zu messages, %u lines are missing\n", type_count, missing);
    return missing == 0 ? 0 : 1;
}
