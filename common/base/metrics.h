/* Classification metrics, computed from a confusion matrix.
 *
 * A matrix counts samples, or pixels of label images: counts[i][j] is the number of samples of
 * class i that were predicted as class j. Matrices for disjoint data parts can be added in any
 * order, and the sum is exact.
 *
 * A ratio with divisor 0 is NaN: "-" in tables, null in JSON, an empty field in CSV. Means only
 * include classes whose value is not NaN. A class that is absent from the data is therefore
 * excluded from the mean accuracy. The mean IoU and F1 count an absent class as 0 if any sample was
 * predicted as that class, and exclude it otherwise. */
#ifndef GP_METRICS_H
#define GP_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Public interface of the library. */
#pragma GCC visibility push(default)

#define GP_CONFUSION_CLASSES_MAX 4096 /* 128 MiB of counts */

/* Confusion matrix with class names. */
typedef struct gp_confusion {
    uint32_t class_count;
    /* [class_count, class_count]: row = true class, column = predicted class */
    uint64_t *counts;
    const char **class_names; /* [class_count]; "0", "1", ... if the caller passed no names */
} gp_confusion;

/* Create a matrix of zeros.
 *   out          matrix; free it with gp_confusion_free()
 *   class_names  class_count names, copied; NULL: "0", "1", ...
 * GP_EINVAL: class_count is not in [1, GP_CONFUSION_CLASSES_MAX]. */
gp_status gp_confusion_new(gp_confusion **out, uint32_t class_count, const char *const *class_names,
                           gp_error *err);
void gp_confusion_free(gp_confusion *matrix); /* accepts NULL */

void gp_confusion_clear(gp_confusion *matrix); /* set all counts to 0 */

/* Add samples or pixels to the matrix; return how many were counted.
 *   truth      [count] true classes from 0; a pixel below 0 (void) is not counted
 *   predicted  [count] predicted classes from 0
 * Pairs with a class of class_count or above, or a predicted class below 0, are not counted. */
uint64_t gp_confusion_count(gp_confusion *matrix, const int32_t *truth, const int32_t *predicted,
                            size_t count);

/* Metrics of one class i. In the formulas n = counts, t = sum of row i, p = sum of column i. */
typedef struct gp_class_metrics {
    uint64_t truth;     /* t: samples in this class */
    uint64_t predicted; /* p: samples predicted as this class */
    uint64_t right;     /* n[i][i]: correct predictions */
    /* n[i][i] / t, also called class accuracy; NaN: the class is absent from the data */
    double recall;
    double precision; /* n[i][i] / p; NaN: no sample was predicted as this class */
    /* 2 n[i][i] / (t + p): harmonic mean of recall and precision (van Rijsbergen 1979, ch. 7);
     * equals the Dice coefficient */
    double f1;
    double iou; /* n[i][i] / (t + p - n[i][i]): intersection over union (Jaccard 1912) */
} gp_class_metrics;

/* Metrics over all classes. Accuracy, mean accuracy, mean IoU and frequency-weighted IoU follow
 * section 5 of Long, Shelhamer, Darrell: Fully Convolutional Networks for Semantic Segmentation
 * (CVPR 2015); absent classes are handled as in the code published with that paper. */
typedef struct gp_metrics {
    uint64_t count;        /* samples or pixels counted */
    uint32_t present;      /* classes with at least one sample in the data */
    double accuracy;       /* sum n[i][i] / sum t: overall accuracy, or pixel accuracy */
    double mean_accuracy;  /* mean recall of the classes present */
    double mean_precision; /* mean over classes with a defined precision */
    double mean_f1;        /* mean over classes with a defined F1 */
    double mean_iou;       /* mean over classes with a defined IoU */
    double weighted_iou;   /* sum t * iou / sum t: frequency-weighted IoU */
} gp_metrics;

/* Return the metrics of one class; `index` must be below class_count. */
gp_class_metrics gp_confusion_class(const gp_confusion *matrix, uint32_t index);

/* Return the metrics over all classes. */
gp_metrics gp_confusion_metrics(const gp_confusion *matrix);

/* Output formats for gp_confusion_format(). */
typedef enum gp_confusion_form {
    /* Text table: rows are true classes, columns are predicted classes. With more than 32 classes
     * the table lists the most frequent confusions instead, at most 20. */
    GP_CONFUSION_TABLE,
    GP_CONFUSION_CLASSES, /* text table with one line of metrics per class, followed by the means */
    /* RFC 4180: a header "true\predicted", CLASS...; then one line per class */
    GP_CONFUSION_CSV,
    /* {"classes": [name], "counts": [[n]], "metrics": {name: value},
     *   "per_class": [{"class", name: value}]}
     * Value names equal the field names in the structs above. */
    GP_CONFUSION_JSON,
} gp_confusion_form;

/* Format the matrix as text; free *text with gp_buffer_free(). GP_ELIMIT:
 * the text exceeds 1 GiB. */
gp_status gp_confusion_format(const gp_confusion *matrix, gp_confusion_form form, char **text, gp_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
