/* checkpoint.h -- the state of a training on disk: whole or not there, checked when it is read.
 *
 *   DIRECTORY/<step>.safetensors    the tensors by name: "conv1.weight", then the optimiser's state
 *                                   "optimizer.0.conv1.weight", then "best.conv1.weight" where the best weights are kept
 *   DIRECTORY/<step>.json           where the training stood, its options, a fingerprint of network and data, and the CRC32C
 *                                   of each 4 MiB of the tensors' file
 *
 * Writing: the tensors' file is allocated at its full size first, so that a full disk is met before a byte of it is
 * written, then written, synced and renamed; the .json after it, the same way: its rename is the commit.  Then the
 * writer prunes the checkpoints of its own run: the last two stay, and the newest whose weights had the lowest
 * validation loss.  A run never removes or replaces the checkpoints of another run (common/model/checkpoint_record.h).
 * A reader takes the newest that is whole; it names a damaged one and uses the one before. */
#ifndef GP_CHECKPOINT_H
#define GP_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"
#include "worker/train/trainer_progress.h"

/* The state of a training; blobs are in the layout of the graph. */
typedef struct gp_checkpoint {
    gp_train_progress progress;
    uint64_t optim_step; /* steps of the optimiser */
    bool is_best;        /* these parameters have the lowest validation loss so far */
    float *parameters;
    float *state; /* state_blobs blobs, one after the other */
    uint32_t state_blobs;
    float *best; /* parameters with the lowest validation loss; NULL: not kept */
    char *plans; /* choices of engines (tuning.h); set by reading, freed by the caller; NULL: none */
} gp_checkpoint;

/* Take memory for the blobs of *copy, as many as those of *like; false: no memory. count: float32 elements of a blob. */
bool gp_checkpoint_take_blobs(gp_checkpoint *copy, const gp_checkpoint *like, size_t count);
void gp_checkpoint_free_blobs(gp_checkpoint *copy);

/* Copy blobs and numbers, but not the plans, into a checkpoint with as many blobs of its own. */
void gp_checkpoint_copy(gp_checkpoint *copy, const gp_checkpoint *from, size_t count);

/* What must be the same when it is read again; borrowed. */
typedef struct gp_checkpoint_frame {
    const gp_graph *graph;
    const gp_train_options *options;
    uint64_t data_fingerprint;
    uint32_t world;
    const char *plans; /* of writing; NULL: none */
} gp_checkpoint_frame;

/* gp_checkpoint_write -- write into the directory, which is made if it does not exist, then prune.
 * GP_EIO with the reason (no space left: how many bytes were needed); older checkpoints are unchanged.
 * GP_EBUSY: the directory has a checkpoint of another run for this step. */
gp_status gp_checkpoint_write(const char *directory, const gp_checkpoint_frame *frame,
                              const gp_checkpoint *checkpoint, gp_error *err);

/* gp_checkpoint_read -- read the newest checkpoint that is whole into the blobs that *checkpoint points to. Of the progress,
 * members that are not in the file stay as they are.
 *   path     a directory: only checkpoints with the options' run-id are read ("": all); or one <step>.json
 *   damaged  the first damaged checkpoint that was skipped, and why; "": none
 * GP_ENOENT: no checkpoint.  GP_ECORRUPT: all are damaged.  GP_EINVAL: the checkpoint is of another network or other
 * data, or an option that the state depends on (solver, mini-batch-size, shuffle, seed) differs. */
gp_status gp_checkpoint_read(gp_checkpoint *checkpoint, const gp_checkpoint_frame *frame, const char *path,
                             char damaged[240], gp_error *err);

/* ---- writing beside the steps ---- */

/* A thread with a copy of the state of its own, so that no step waits for the disk. */
typedef struct gp_saver gp_saver;

/* The frame and all that it points to are borrowed for the life of the saver. like: a state as it will be saved. */
gp_status gp_saver_new(gp_saver **out, const char *directory, const gp_checkpoint_frame *frame,
                       const gp_checkpoint *like, gp_error *err);
void gp_saver_free(gp_saver *saver); /* waits for what is being written; accepts NULL */

/* Copy the state and write it; false: the one before is still being written, nothing was copied. */
bool gp_saver_save(gp_saver *saver, const gp_checkpoint *checkpoint);
void gp_saver_wait(gp_saver *saver);

/* What became of a checkpoint, once each: true with a sentence and whether it is a failure. */
bool gp_saver_news(gp_saver *saver, char text[480], bool *failed);

#endif
