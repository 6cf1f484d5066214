/* Find the checkpoints in a directory and read their records (DIRECTORY/<step>.json).
 *
 * A record belongs to a run: a training and all trainings that resumed it. The option run-id in the
 * record identifies the run. Records from releases without run ids have none; together they count
 * as a single run with id "". */
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
    GP_CHECKPOINT_FORMAT = 1, /* record format version */
    GP_CHECKPOINT_RECORD_BYTES_MAX = 4 << 20,
    GP_CHECKPOINT_LIST_MAX = 4096, /* more checkpoints in a directory are ignored */
    GP_CHECKSUM_DIGITS = 8,
};

/* Checkpoints found in a directory. */
typedef struct gp_checkpoint_list {
    uint64_t step[GP_CHECKPOINT_LIST_MAX]; /* newest first */
    uint32_t count;
} gp_checkpoint_list;

/* List all steps that have a record file in the directory. The files are not read. GP_ENOENT: the
 * directory does not exist. GP_EIO, GP_ELIMIT: it cannot be read. On failure the list is empty. */
gp_status gp_checkpoint_list_steps(gp_checkpoint_list *out, const char *directory, gp_error *err);

/* Split DIRECTORY/<step>.json. false: the path has another form, and `directory` is the whole
 * path. */
bool gp_checkpoint_split_path(const char *path, char directory[1024], uint64_t *step);

/* Read a record and verify the checksum. GP_ENOENT: the file cannot be opened. GP_ECORRUPT: the
 * record is damaged. */
gp_status gp_checkpoint_read_record(gp_json **out, const char *directory, uint64_t step, gp_error *err);

/* Check that the tensor file of a record exists and has the size that the record states. The
 * contents are not read. GP_ECORRUPT: it is missing or has another size. */
gp_status gp_checkpoint_check_tensors(const gp_json *record, const char *directory, uint64_t step,
                                      gp_error *err);

/* Return a record's run id, borrowed from the record. "": none. */
const char *gp_checkpoint_record_run(const gp_json *record);

/* Check whether a training can continue from a record.
 *   graph    the training's network
 *   options  the training's options; mini-batch size 0 is not compared
 *   path     record file, for messages
 * GP_EVERSION: unknown format, option, or value of an option. GP_EINVAL: different network, or a
 * different value for an option that the state depends on (solver, mini-batch-size, shuffle, seed);
 * the message contains both values. */
gp_status gp_checkpoint_check_record(const gp_json *record, const gp_graph *graph,
                                     const gp_train_options *options, const char *path, gp_error *err);

/* Compute the checksum over a record's text, after overwriting the checksum digits in the text with
 * zeros.
 *   found  set to the previous digits; "": the text has no checksum */
uint32_t gp_checkpoint_checksum(const gp_buffer *record, char found[GP_CHECKSUM_DIGITS + 1]);

/* Write the checksum digits into a record's text, which must have a checksum member. */
void gp_checkpoint_set_checksum(const gp_buffer *record, uint32_t checksum);

/* Return whether a text is a valid run id: 1 to 39 letters, digits, '-', '_' and '.'. */
bool gp_run_id_is_valid(const char *text);

#endif
