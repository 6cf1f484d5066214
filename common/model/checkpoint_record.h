/* checkpoint_record.h -- find the checkpoints of a directory and read their records (DIRECTORY/<step>.json).
 *
 * A record belongs to a run: one training, and every training that resumed it.  The run's id is the option run-id among
 * the record's options.  Records without one, of releases before run ids, count as one run whose id is "". */
#ifndef GP_CHECKPOINT_RECORD_H
#define GP_CHECKPOINT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/text/json.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

enum {
    GP_CHECKPOINT_FORMAT = 1,
    GP_CHECKPOINT_RECORD_BYTES_MAX = 4 << 20,
    GP_CHECKPOINT_LIST_MAX = 4096, /* further checkpoints of a directory are ignored */
    GP_CHECKSUM_DIGITS = 8,
};

typedef struct gp_checkpoint_list {
    uint64_t step[GP_CHECKPOINT_LIST_MAX]; /* newest first */
    uint32_t count;
} gp_checkpoint_list;

/* List the steps for which the directory has a record, readable or not.  GP_ENOENT: no such directory. */
gp_status gp_checkpoint_list_steps(gp_checkpoint_list *out, const char *directory, gp_error *err);

/* Split DIRECTORY/<step>.json.  False: the path does not end in <step>.json; directory is then the whole path. */
bool gp_checkpoint_split_path(const char *path, char directory[1024], uint64_t *step);

/* Read a record and verify its checksum.  GP_ENOENT: it cannot be opened.  GP_ECORRUPT: it is damaged. */
gp_status gp_checkpoint_read_record(gp_json **out, const char *directory, uint64_t step, gp_error *err);

/* The id of the record's run; valid as long as the record. */
const char *gp_checkpoint_record_run(const gp_json *record);

/* Check that a training of this network with these options can continue from the record, which was read from `path`.
 * A mini-batch size of 0 in the options is not compared.
 * GP_EVERSION: unknown format.  GP_EINVAL: another network, or another value of an option that the state depends on
 * (solver, mini-batch-size, shuffle, seed); the message has both values. */
gp_status gp_checkpoint_check_record(const gp_json *record, const gp_graph *graph,
                                     const gp_train_options *options, const char *path, gp_error *err);

/* Compute the checksum of a record's text, with zeros in place of the checksum that it holds.  The text keeps the
 * zeros; `found` receives the old digits ("": the text has no checksum). */
uint32_t gp_checkpoint_checksum(const gp_buffer *record, char found[GP_CHECKSUM_DIGITS + 1]);

/* Write the digits into the place of the checksum.  The text must have one. */
void gp_checkpoint_set_checksum(const gp_buffer *record, uint32_t checksum);

/* Whether the text can be a run id: 1 to 39 letters, digits, '-', '_' and '.'. */
bool gp_run_id_is_valid(const char *text);

#endif
