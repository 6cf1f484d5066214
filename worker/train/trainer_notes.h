/* trainer_notes.h -- notes that are collected during preparation and sent to the client when the
 * training starts. */
#ifndef GP_TRAINER_NOTES_H
#define GP_TRAINER_NOTES_H

#include "worker/train/trainer.h"

enum { GP_TRAIN_NOTES_MAX = 6 };

/* Notes for the client, in order; at most GP_TRAIN_NOTES_MAX. */
typedef struct gp_train_notes {
    char text[GP_TRAIN_NOTES_MAX][480];
    bool warning[GP_TRAIN_NOTES_MAX];
    uint32_t count;
} gp_train_notes;

/* Add a note, cut to 479 bytes; an empty text adds nothing. */
void gp_train_notes_add(gp_train_notes *notes, bool warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Send all notes. */
void gp_train_notes_report(const gp_train_notes *notes, const gp_train_sink *sink);

#endif
