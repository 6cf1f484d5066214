/* answers.h -- results for one part of a prediction: sample scores or classes, and a comparison
 * with the labels as sums and a confusion matrix.
 *
 * Classes refer to the network's first loss. A position that has a class is either a whole sample
 * or one pixel in a sample. */
#ifndef GP_ANSWERS_H
#define GP_ANSWERS_H

#include "worker/predict/predictor.h"
#include "worker/predict/tiled_inference.h"

/* Prediction results, and the properties that determine their format. */
typedef struct gp_answers {
    const gp_graph *graph;  /* borrowed */
    gp_predict_answer kind; /* as requested by the client */
    bool compares;          /* the targets match the network's losses, so they can be compared */
    uint32_t part_max;      /* maximum sample count in a part */
    size_t sample_bytes;    /* bytes per sample in scores */
    uint32_t place_count;   /* positions per sample; 0: the network predicts values, not classes */
    float *largest;         /* [place_count] largest score at each position of the current sample */
    int32_t *predicted;     /* [place_count] class with that score */

    /* Results for the current part. */
    /* [part_max, sample_bytes] scores or classes; NULL: the client requested sums only */
    uint8_t *scores;
    gp_buffer rows;          /* used instead of scores for whole images: height, width and classes of each */
    double sums[GP_SUMS];    /* written by the plan; for whole images, written here */
    int32_t *labels;         /* [part_max] each sample's class, if the data have classes */
    gp_confusion *confusion; /* NULL: not requested, no targets to compare, or too many classes */
    uint32_t labelled;       /* samples that have a target */
    uint64_t excluded;       /* targets without a class or value, in readable samples */
    uint8_t *skipped;        /* [part_max] 1: the sample was unreadable */
    uint32_t skipped_count;
} gp_answers;

/* Allocate the memory for results. Set graph, kind, compares and part_max before the call; call
 * gp_answers_deinit() even on failure.
 *   whole  images have any size, and rows are used instead of scores
 * GP_EINVAL: the client requested classes, but the network predicts values. */
gp_status gp_answers_init(gp_answers *answers, bool whole, gp_error *err);
void gp_answers_deinit(gp_answers *answers);
void gp_answers_clear(gp_answers *answers); /* call it before each part */

/* Mark a sample as skipped.
 *   at      position in the part
 *   target  set to "missing"; may be NULL */
void gp_answers_skip(gp_answers *answers, uint32_t at, void *target);

/* Read the targets of `count` samples from position `at` of the part: labels and missing
 * targets. A class that the network does not have is treated as missing. */
void gp_answers_read_targets(gp_answers *answers, void *targets, uint32_t count, uint32_t at);

/* Store the scores that one plan call computed for `count` samples from position `at`. targets:
 * used if there is a confusion matrix. */
void gp_answers_store(gp_answers *answers, const float *scores, const int32_t *targets, uint32_t count,
                      uint32_t at);

/* Store one whole image and compare it with the labels. */
gp_status gp_answers_store_image(gp_answers *answers, const gp_stitched *image, uint32_t at, gp_error *err);

/* Return the result for the part. Borrowed until the next gp_answers_clear(). */
gp_predicted gp_answers_get(const gp_answers *answers, uint64_t first, uint32_t count);

#endif
