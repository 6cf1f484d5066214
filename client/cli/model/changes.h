/* Layer changes of a network, as printed by `train --pretrained` and `model edit`. */
#ifndef GP_CLI_CHANGES_H
#define GP_CLI_CHANGES_H

#include <gradpool/gradpool.h>

#include "common/base/text/json.h"

/* A changed layer. */
typedef struct cli_change {
    /* action: "added", "removed", "frozen", ... */
    char action[16], layer[64], kind[32], output[64], settings[160];
    int64_t parameters;
} cli_change;

/* Change list; initialize with zeros. */
typedef struct cli_changes {
    cli_change *rows; /* owned */
    uint32_t count;
} cli_changes;

/* Append a change; drop it if memory is short. */
void changes_add(cli_changes *changes, const gp_layer_change *change);

/* Return whether the list has a change with this action. */
bool changes_have(const cli_changes *changes, const char *action);

/* Print the changes as a table on standard output; frozen layers share one row. */
void changes_print(const cli_changes *changes);

/* Write all changes as the member "changes" of the current JSON object. */
void changes_write(const cli_changes *changes, gp_json_writer *writer);

#endif
