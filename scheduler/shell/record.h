/* record.h -- what a pool is, for the scheduler that follows one that died: how many workers, on which devices, and in which
 * surroundings (surroundings.h).
 *
 * The file stands in the pool's directory for as long as the pool is meant to be there: a scheduler that ends as it was
 * told removes it.  So who finds it and no scheduler knows that one died (proto/local/places.h: places->record). */
#ifndef GP_RECORD_H
#define GP_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/local/places.h"

enum { GP_RECORD_BYTES_MAX = 128 << 10 };

typedef struct gp_record {
    uint32_t workers;
    int64_t idle_ms, suspect_ms, silence_ms; /* as in gp_shell_options */
    char devices[256];                       /* as in --devices; "" = auto */
    char listen[GP_TEXT_ENDPOINT];           /* where other hosts reach it; "" = nowhere */
    char *surroundings; /* lines of surroundings.h; NULL: none.  What was read is freed with gp_free() */
} gp_record;

/* False: there is none, or it makes no sense. */
bool gp_record_read(gp_record *out, const gp_places *places);
/* Written aside and renamed. */
gp_status gp_record_write(const gp_record *record, const gp_places *places, gp_error *err);
void gp_record_remove(const gp_places *places);

#endif
