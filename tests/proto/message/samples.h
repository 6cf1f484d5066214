/* samples.h -- a fixed, plausible value of every message: golden bytes, round trips and fuzz seeds are made of them. */
#ifndef GP_SAMPLES_H
#define GP_SAMPLES_H

#include "proto/message/messages.h"

/* Fill *message (type->size bytes) with values that pass the ranges: minima, maxima and points between by `variant`
 * (0: all at their lowest, 1: all at their highest, 2: texts and numbers that differ from field to field). */
void sample_fill(const gp_message_type *type, void *message, unsigned variant);

/* An envelope whose fields all differ. */
gp_envelope sample_envelope(const gp_message_type *type);

/* Room for any message, on the heap. */
void *sample_new(void);

#endif
