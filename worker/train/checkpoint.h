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

/* The blobs are in the graph's layout, borrowed. */
typedef struct gp_checkpoint {
    uint64_t step;         /* committed */
    uint32_t epoch, first; /* where the next step begins: epoch from 0, position in its order */
    uint64_t optim_step;
    double best_loss; /* of the validations so far; infinite = none */
    int64_t no_better;
    double loss_scale;        /* 0: none */
    uint32_t loss_scale_good; /* steps since it changed */
    bool is_best;             /* these weights have the lowest validation loss so far */
    float *parameters;
    float *state; /* state_blobs of them, one after the other */
    uint32_t state_blobs;
    float *best; /* NULL: not kept */
    char *
        plans; /* of reading: by which engines it was computed (tuning.h), the caller's to free; NULL: none */
} gp_checkpoint;

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

/* gp_checkpoint_read -- read the newest checkpoint that is whole into the blobs that *checkpoint points to.
 *   path     a directory: only checkpoints with the options' run-id are read ("": all); or one <step>.json
 *   damaged  the first damaged checkpoint that was skipped, and why; "": none
 * GP_ENOENT: no checkpoint.  GP_ECORRUPT: all are damaged.  GP_EINVAL: the checkpoint is of another network or other
 * data, or an option that the state depends on (solver, mini-batch-size, shuffle, seed) differs. */
gp_status gp_checkpoint_read(gp_checkpoint *checkpoint, const gp_checkpoint_frame *frame, const char *path,
                             char damaged[240], gp_error *err);

/* ---- writing beside the steps ---- */

/* A thread with a copy of the state of its own, so that no step waits for the disk. */
typedef struct gp_saver gp_saver;

/* Borrowed for the saver's life: frame and what it points to.  blobs: how many of graph->blob_count elements. */
gp_status gp_saver_new(gp_saver **out, const char *directory, const gp_checkpoint_frame *frame,
                       uint32_t state_blobs, bool best, gp_error *err);
void gp_saver_free(gp_saver *saver); /* waits for what is being written; accepts NULL */

/* Copy the state and write it; false: the one before is still being written, nothing was copied. */
bool gp_saver_save(gp_saver *saver, const gp_checkpoint *checkpoint);
void gp_saver_wait(gp_saver *saver);

/* What became of a checkpoint, once each: true with a sentence and whether it is a failure. */
bool gp_saver_news(gp_saver *saver, char text[480], bool *failed);

#endif
