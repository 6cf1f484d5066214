/* Sample values for each message type, used for golden bytes, round trips and fuzz seeds. */
#ifndef GP_SAMPLES_H
#define GP_SAMPLES_H

#include "proto/message/messages.h"

/* Fill *message, a struct of type->size bytes, with valid values.
 *
 *   variant 0  all values at their minimum
 *   variant 1  all values at their maximum
 *   variant 2  values that differ from field to field */
void sample_fill(const gp_message_type *type, void *message, unsigned variant);

/* Return an envelope whose fields all have different values. */
gp_envelope sample_envelope(const gp_message_type *type);

/* Allocate a zeroed buffer that fits the struct of any message. */
void *sample_new(void);

#endif
