/* Layer changes of a network: collect them, print them as a table, write them as JSON. */
#include "client/cli/model/changes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/text.h"

void changes_add(cli_changes *changes, const gp_layer_change *change)
{
    cli_change *rows = gp_array_grow(changes->rows, changes->count, sizeof(*rows));

    if (rows == NULL)
        return;
    changes->rows = rows;
    cli_change *row = &changes->rows[changes->count++];

    *row = (cli_change){ .parameters = change->parameters };
    snprintf(row->action, sizeof(row->action), "%s", change->action);
    snprintf(row->layer, sizeof(row->layer), "%s", change->layer);
    snprintf(row->kind, sizeof(row->kind), "%s", change->kind);
    snprintf(row->output, sizeof(row->output), "%s", change->output);
    snprintf(row->settings, sizeof(row->settings), "%s", change->settings);
}

bool changes_have(const cli_changes *changes, const char *action)
{
    for (uint32_t i = 0; i < changes->count; i++)
        if (strcmp(changes->rows[i].action, action) == 0)
            return true;
    return false;
}

/* Frozen layers share one row: first and last layer, and the frozen parameter count. */
void changes_print(const cli_changes *changes)
{
    const cli_change *first = NULL, *last = NULL;
    int64_t parameters = 0;
    uint32_t layers = 0;
    show_table *table;

    if (changes->count == 0)
        return;
    table = show_table_new(6, "change\tlayer\tkind\toutput\tparameters\tsettings");
    for (const cli_change *row = changes->rows; row < changes->rows + changes->count; row++) {
        if (strcmp(row->action, "frozen") != 0) {
            show_cells(table, "%s\t%s\t%s\t%s\t%" PRId64 "\t%s", row->action, row->layer, row->kind,
                       row->output, row->parameters, row->settings);
            continue;
        }
        last = row;
        first = first == NULL ? last : first;
        parameters += last->parameters;
        layers++;
    }
    if (layers > 0)
        show_cells(table, "frozen\t%s%s%s\t\t\t%" PRId64 "\t%" PRIu32 " layer%s with weights", first->layer,
                   layers > 1 ? " .. " : "", layers > 1 ? last->layer : "", parameters, layers,
                   gp_plural(layers));
    show_table_print_free(table);
    printf("\n");
    fflush(stdout); /* flush, so that later messages on standard error follow the table */
}

void changes_write(const cli_changes *changes, gp_json_writer *writer)
{
    gp_json_begin_array(writer, "changes");
    for (uint32_t i = 0; i < changes->count; i++) {
        const cli_change *row = &changes->rows[i];

        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "change", row->action);
        gp_json_put_text(writer, "layer", row->layer);
        gp_json_put_text(writer, "kind", row->kind);
        gp_json_put_text(writer, "output", row->output);
        gp_json_put_integer(writer, "parameters", row->parameters);
        gp_json_put_text(writer, "settings", row->settings);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
}
