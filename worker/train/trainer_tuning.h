/* trainer_tuning.h -- engine choices for GPU libraries, made once for all ranks (backend.h,
 * gp_tuning). */
#ifndef GP_TRAINER_TUNING_H
#define GP_TRAINER_TUNING_H

#include "worker/train/trainer.h"
#include "worker/train/trainer_notes.h"
#include "worker/train/tuning.h"

/* Engine choices of one training, and the state for making them. */
typedef struct gp_train_tuning {
    /* Borrowed from the trainer. */
    const gp_train_options *options;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_train_control *control;
    gp_comm *comm; /* set by gp_train_tuning_begin() */

    bool restarted; /* other ranks wait for this group, so do not time engines */
    char *document; /* engine choices as JSON (tuning.h), owned; NULL: none */
    bool carried;   /* the document came from an earlier group, not from a checkpoint */
    /* used while plans are compiled; choices NULL: use the library's default rule */
    gp_tuning tuning;
    uint32_t root; /* rank that makes the choices */
    int64_t budget_ns;
    char libraries[GP_LIBRARIES_BYTES]; /* library versions and device kind; "": not tuned */
    char note[480];
} gp_train_tuning;

/* Prepare tuning before plans are compiled; collective. The root returns at once; the other
 * ranks wait until the root has chosen.
 *   comm  borrowed until gp_train_tuning_deinit() */
gp_status gp_train_tuning_begin(gp_train_tuning *tuning, gp_comm *comm, gp_error *err);

/* Return the choices for gp_plan_options. NULL: use the library's default rule. */
gp_tuning *gp_train_tuning_choices(gp_train_tuning *tuning);

/* Finish tuning after plans are compiled; collective. */
gp_status gp_train_tuning_end(gp_train_tuning *tuning, gp_train_notes *notes, gp_error *err);

/* Return the choices used in the plans, for checkpoints. NULL: default rule. */
const char *gp_train_tuning_document(const gp_train_tuning *tuning);
void gp_train_tuning_deinit(gp_train_tuning *tuning);

#endif
