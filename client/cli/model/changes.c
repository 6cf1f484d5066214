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

void changes_deinit(cli_changes *changes)
{
    gp_free(changes->rows);
    *changes = (cli_changes){ 0 };
}

bool changes_have(const cli_changes *changes, const char *action)
{
    for (uint32_t i = 0; i < changes->count; i++)
        if (strcmp(changes->rows[i].action, action) == 0)
            return true;
    return false;
}

/* Add one row for all frozen layers: first and last layer, and the frozen parameter count. */
static void print_frozen(show_table *table, const cli_changes *changes)
{
    const cli_change *first = NULL, *last = NULL;
    int64_t parameters = 0;
    uint32_t layers = 0;
    char names[160], number[32], note[64];

    for (uint32_t i = 0; i < changes->count; i++) {
        if (strcmp(changes->rows[i].action, "frozen") != 0)
            continue;
        last = &changes->rows[i];
        first = first == NULL ? last : first;
        parameters += last->parameters;
        layers++;
    }
    if (layers == 0)
        return;
    snprintf(names, sizeof(names), "%s%s%s", first->layer, layers > 1 ? " .. " : "",
             layers > 1 ? last->layer : "");
    snprintf(number, sizeof(number), "%" PRId64, parameters);
    snprintf(note, sizeof(note), "%" PRIu32 " layer%s with weights", layers, gp_plural(layers));
    show_row(table, (const char *[]){ "frozen", names, "", "", number, note });
}

void changes_print(const cli_changes *changes)
{
    show_table *table;

    if (changes->count == 0)
        return;
    table =
        show_table_new(6, (const char *[]){ "change", "layer", "kind", "output", "parameters", "settings" });
    for (uint32_t i = 0; i < changes->count; i++) {
        const cli_change *row = &changes->rows[i];
        char number[32];

        if (strcmp(row->action, "frozen") == 0)
            continue;
        snprintf(number, sizeof(number), "%" PRId64, row->parameters);
        show_row(table,
                 (const char *[]){ row->action, row->layer, row->kind, row->output, number, row->settings });
    }
    print_frozen(table, changes);
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
