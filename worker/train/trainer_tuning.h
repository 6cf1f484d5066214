/* trainer_tuning.h -- the engines that a GPU's libraries compute with, chosen once for all ranks (backend.h, gp_tuning). */
#ifndef GP_TRAINER_TUNING_H
#define GP_TRAINER_TUNING_H

#include "worker/train/trainer.h"
#include "worker/train/trainer_notes.h"
#include "worker/train/tuning.h"

typedef struct gp_train_tuning {
    /* Borrowed from the trainer. */
    const gp_train_options *options;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_train_control *control;
    gp_comm *comm; /* set by gp_train_tuning_begin() */

    bool restarted;   /* other ranks wait for this group: no engine is timed */
    char *document;   /* the choices as JSON (tuning.h), owned; NULL: none */
    bool carried;     /* the document is from an earlier group, not from a checkpoint */
    gp_tuning tuning; /* while plans are compiled; choices NULL: by rule */
    uint32_t root;    /* rank that chooses */
    int64_t budget_ns;
    char libraries[GP_LIBRARIES_BYTES]; /* versions and kind of device; "": not tuned */
    char note[480];
} gp_train_tuning;

/* Prepare tuning before plans are compiled; collective. The root returns at once, the other ranks after the root has chosen.
 *   comm  borrowed until gp_train_tuning_deinit() */
gp_status gp_train_tuning_begin(gp_train_tuning *tuning, gp_comm *comm, gp_error *err);

/* For gp_plan_options; NULL: the libraries' own rule chooses. */
gp_tuning *gp_train_tuning_choices(gp_train_tuning *tuning);

/* After plans are compiled; collective. */
gp_status gp_train_tuning_end(gp_train_tuning *tuning, gp_train_notes *notes, gp_error *err);

/* The choices that the plans were compiled with, for checkpoints; NULL: by rule. */
const char *gp_train_tuning_document(const gp_train_tuning *tuning);
void gp_train_tuning_deinit(gp_train_tuning *tuning);

#endif
