/* Serialize a confusion matrix: in a JSON document, and as bytes for the network. */
#ifndef GP_METRICS_PUT_H
#define GP_METRICS_PUT_H

#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"
#include "common/base/metrics.h"

/* Write all gp_metrics members except count and accuracy into the open JSON object. */
void gp_confusion_put_means(gp_json_writer *writer, const gp_metrics *metrics);

/* Write the GP_CONFUSION_JSON array "per_class" into the open JSON object. */
void gp_confusion_put_per_class(gp_json_writer *writer, const gp_confusion *matrix);

enum { GP_CONFUSION_CELL_BYTES = 16 };

/* Append all nonzero cells in row-major order: {u32 true class, u32 predicted class, u64 count},
 * little-endian. The number of cells is at most the number of samples, even for many classes. */
gp_status gp_confusion_pack(const gp_confusion *matrix, gp_buffer *cells, gp_error *err);

/* Add packed cells received from another process. All cells are checked before the first is added.
 * GP_EPROTO: incomplete or unordered cells, class out of range, a zero count, or a count
 * overflow. */
gp_status gp_confusion_unpack(gp_confusion *into, const void *cells, size_t bytes, gp_error *err);

#endif
