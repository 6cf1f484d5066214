/* checkpoint.h -- training checkpoints on disk: written atomically and verified when read.
 *
 *   DIRECTORY/<step>.safetensors  tensors by name: "conv1.weight", then the optimizer state
 *                                 "optimizer.0.conv1.weight", then "best.conv1.weight" if the
 *                                 best weights are kept
 *   DIRECTORY/<step>.json         record: training progress, options, a fingerprint of network
 *                                 and data, and the CRC32C of each 4 MiB block in the tensor
 *                                 file
 *
 * The writer first allocates the tensor file at full size, so that a full disk is detected before
 * any byte is written. It writes and syncs both files under temporary names, and renames first the
 * tensor file and then the .json record. The second rename is the commit. Before the renames the
 * writer removes the record of an earlier checkpoint of the same step: after a crash, that step has
 * a complete checkpoint or none. After the commit the writer prunes the run's own checkpoints: the
 * newest two stay, and the newest whose weights had the lowest validation loss. A run never removes
 * or replaces another run's checkpoints (common/model/checkpoint_record.h). A reader takes the
 * newest intact checkpoint; it reports a damaged one and falls back to the previous one. */
#ifndef GP_CHECKPOINT_H
#define GP_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"
#include "worker/train/trainer_progress.h"

/* Training state. The blobs have the graph's memory layout. */
typedef struct gp_checkpoint {
    gp_train_progress progress;
    uint64_t optim_step; /* optimizer steps so far */
    bool is_best;        /* these parameters have the lowest validation loss so far */
    float *parameters;
    float *state; /* [state_blobs] consecutive blobs */
    uint32_t state_blobs;
    float *best; /* parameters with the lowest validation loss; NULL: not kept */
    /* tuning document (tuning.h), set by gp_checkpoint_read() and freed by the caller; NULL:
     * none */
    char *plans;
} gp_checkpoint;

/* Allocate the blobs of *copy, as many as *like has. false: out of memory.
 *   count  float32 elements per blob */
bool gp_checkpoint_take_blobs(gp_checkpoint *copy, const gp_checkpoint *like, size_t count);
void gp_checkpoint_free_blobs(gp_checkpoint *copy);

/* Copy blobs and numbers into a checkpoint that has as many blobs. The plans are not copied. */
void gp_checkpoint_copy(gp_checkpoint *copy, const gp_checkpoint *from, size_t count);

/* Properties that must match when the checkpoint is read again; all borrowed. */
typedef struct gp_checkpoint_frame {
    const gp_graph *graph;
    const gp_train_options *options;
    uint64_t data_fingerprint;
    uint32_t world;
    const char *plans; /* tuning document to write; NULL: none */
} gp_checkpoint_frame;

/* Write a checkpoint and prune older ones. The directory is created if necessary.
 *
 *   GP_EIO    write error; older checkpoints are unchanged. For a full disk the message has the
 *             number of bytes needed.
 *   GP_EBUSY  the directory has another run's checkpoint for this step */
gp_status gp_checkpoint_write(const char *directory, const gp_checkpoint_frame *frame,
                              const gp_checkpoint *checkpoint, gp_error *err);

/* Read the newest intact checkpoint into the blobs that *checkpoint points to. Progress fields
 * that are missing in the file keep their values.
 *   path     a directory: read only checkpoints with the run-id in the options ("": any run); or
 *            one <step>.json
 *   damaged  set to the first damaged checkpoint that was skipped, with the reason; "": none
 *
 *   GP_ENOENT    there is no checkpoint
 *   GP_ECORRUPT  all checkpoints are damaged
 *   GP_EINVAL    the checkpoint has another network or other data, or differs in an option that
 *                the state depends on (solver, mini-batch-size, shuffle, seed) */
gp_status gp_checkpoint_read(gp_checkpoint *checkpoint, const gp_checkpoint_frame *frame, const char *path,
                             char damaged[240], gp_error *err);

/* ---- asynchronous writing ---- */

/* Background thread that writes checkpoints from a private state copy, so that no step waits for
 * the disk. */
typedef struct gp_saver gp_saver;

/* Start the thread. *frame and all pointers in it are borrowed until gp_saver_free(). `like` is a
 * checkpoint with as many blobs as later ones. */
gp_status gp_saver_new(gp_saver **out, const char *directory, const gp_checkpoint_frame *frame,
                       const gp_checkpoint *like, gp_error *err);
void gp_saver_free(gp_saver *saver); /* waits for a write in progress; accepts NULL */

/* Copy the state and write it in the background. false: the previous write is in progress, and
 * the state was not copied. */
bool gp_saver_save(gp_saver *saver, const gp_checkpoint *checkpoint);

/* Wait until no write is in progress. */
void gp_saver_wait(gp_saver *saver);

/* Fetch the last write's result, once. false: no new result. *failed: `text` is an error
 * message. */
bool gp_saver_events(gp_saver *saver, char text[480], bool *failed);

#endif
