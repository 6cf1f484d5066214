/* metrics_put.h -- a confusion matrix inside other JSON, and as bytes on the wire. */
#ifndef GP_METRICS_PUT_H
#define GP_METRICS_PUT_H

#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"
#include "common/base/metrics.h"

/* Members of GP_CONFUSION_JSON, into the object that is open. */
void gp_confusion_put_means(gp_json_writer *writer,
                            const gp_metrics *metrics); /* all but count and accuracy */
void gp_confusion_put_per_class(gp_json_writer *writer, const gp_confusion *matrix); /* "per_class": [...] */

/* The cells that are not 0, in order: {u32 true class, u32 predicted class, u64 count}, little-endian; so a part of the data
 * has at most as many cells as samples, whatever the number of classes. */
enum { GP_CONFUSION_CELL_BYTES = 16 };
gp_status gp_confusion_pack(const gp_confusion *matrix, gp_buffer *cells, gp_error *err);

/* gp_confusion_unpack -- add cells that came from elsewhere; all or none.
 * GP_EPROTO: not whole cells, not in order, a class out of range, a count of 0 or one that passes 2^64. */
gp_status gp_confusion_unpack(gp_confusion *into, const void *cells, size_t bytes, gp_error *err);

#endif
