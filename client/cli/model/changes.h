/* changes.h -- what became of a network's layers, as `train --pretrained` and `model edit` print it. */
#ifndef GP_CLI_CHANGES_H
#define GP_CLI_CHANGES_H

#include <gradpool/gradpool.h>

#include "common/base/text/json.h"

typedef struct cli_change {
    char action[16], layer[64], kind[32], output[64], settings[160];
    int64_t parameters;
} cli_change;

/* Zero-initialise. */
typedef struct cli_changes {
    cli_change *rows; /* owned */
    uint32_t count;
} cli_changes;

void changes_add(cli_changes *changes,
                 const gp_layer_change *change); /* one that there is no memory for is left out */
void changes_deinit(cli_changes *changes);

bool changes_have(const cli_changes *changes, const char *action);

/* A table on standard output; frozen layers as one line. */
void changes_print(const cli_changes *changes);

/* The member "changes" of the object that the writer is in: all of them. */
void changes_write(const cli_changes *changes, gp_json_writer *writer);

#endif
