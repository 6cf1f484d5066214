/* metrics.h -- how right predicted classes are: a confusion matrix, and the numbers that are read off it.
 *
 * A matrix counts samples, or pixels of label images: n[i][j] of those whose class is i were given class j.  Matrices of
 * parts of the data are added, so whoever counts each part once has counted each sample once, in any order, to the bit.
 *
 * What is not there has no number: a ratio whose divisor is 0 is NaN ("-" in tables, null in JSON, empty in CSV), and
 * means are taken over the classes that have the number.  So a class that the data does not have is left out of
 * the mean accuracy; in the mean IoU and F1 it counts 0 if anything was taken for it, and is left out if nothing was. */
#ifndef GP_METRICS_H
#define GP_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* these are part of the library's interface */

#define GP_CONFUSION_CLASSES_MAX 4096 /* 128 MiB of counts */

typedef struct gp_confusion {
    uint32_t class_count;
    uint64_t
        *counts; /* [class_count, class_count]: row = the class it is, column = the class that was given */
    const char **class_names; /* [class_count]; "0", "1", ... where they have no names */
} gp_confusion;

/* gp_confusion_new -- all zero.
 *   out          released with gp_confusion_free()
 *   class_names  class_count of them, copied; NULL: their numbers from 0
 * GP_EINVAL: class_count is not in [1, GP_CONFUSION_CLASSES_MAX]. */
gp_status gp_confusion_new(gp_confusion **out, uint32_t class_count, const char *const *class_names,
                           gp_error *err);
void gp_confusion_free(gp_confusion *matrix); /* accepts NULL */

void gp_confusion_clear(gp_confusion *matrix); /* all zero again */

/* gp_confusion_count -- add `count` samples or pixels.
 *   truth, predicted  [count] classes from 0
 * One whose true class is below 0 (void) is not counted.  Returns how many were.
 * Neither may be class_count or more, and no predicted class below 0: such pairs are not counted either. */
uint64_t gp_confusion_count(gp_confusion *matrix, const int32_t *truth, const int32_t *predicted,
                            size_t count);

/* Of one class.  With n = counts, t = sum of its row, p = sum of its column. */
typedef struct gp_class_metrics {
    uint64_t truth;     /* t: samples that are of this class */
    uint64_t predicted; /* p: samples that were taken for it */
    uint64_t right;     /* n[i][i] */
    double recall;      /* n[i][i] / t: the class's accuracy; NaN: the data has none of it */
    double precision;   /* n[i][i] / p; NaN: nothing was taken for it */
    double f1;  /* 2 n[i][i] / (t + p): the harmonic mean of both (van Rijsbergen 1979, ch. 7), or Dice's */
    double iou; /* n[i][i] / (t + p - n[i][i]): intersection over union (Jaccard 1912) */
} gp_class_metrics;

/* Of all.  The four of segmentation are those of Long, Shelhamer, Darrell: Fully convolutional networks for semantic
 * segmentation (CVPR 2015), section 5, absent classes as in the code beside it. */
typedef struct gp_metrics {
    uint64_t count;        /* samples or pixels counted */
    uint32_t present;      /* classes that the data has */
    double accuracy;       /* sum n[i][i] / sum t: global, or pixel accuracy */
    double mean_accuracy;  /* mean of recall over the classes present */
    double mean_precision; /* means over the classes that have the number */
    double mean_f1;
    double mean_iou;
    double weighted_iou; /* sum t * iou / sum t: frequency-weighted */
} gp_metrics;

/* gp_confusion_class -- `index` below class_count. */
gp_class_metrics gp_confusion_class(const gp_confusion *matrix, uint32_t index);
gp_metrics gp_confusion_metrics(const gp_confusion *matrix);

typedef enum gp_confusion_form {
    /* For people: rows are true classes, columns predicted ones.  Of more than 32 classes not the matrix but the
     * most frequent confusions, at most 20. */
    GP_CONFUSION_TABLE,
    GP_CONFUSION_CLASSES, /* for people: a line a class with its metrics, and their means */
    GP_CONFUSION_CSV, /* RFC 4180: a header "true\predicted", CLASS...; then a line a class: its name and counts */
    /* {"classes": [name], "counts": [[n]], "metrics": {name: value}, "per_class": [{"class", name: value}]}, the names
     * those of the members above. */
    GP_CONFUSION_JSON,
} gp_confusion_form;

/* gp_confusion_format -- the matrix as text, freed with gp_text_free().
 * GP_ELIMIT: more than 1 GiB. */
gp_status gp_confusion_format(const gp_confusion *matrix, gp_confusion_form form, char **text, gp_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
