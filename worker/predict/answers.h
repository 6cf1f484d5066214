/* answers.h -- what a part of a prediction returns: scores or classes of its samples, and the comparison with the data's
 * labels as sums and a confusion matrix.
 *
 * Classes are of the network's first loss. A place is what has a class: the sample, or each of its pixels. */
#ifndef GP_ANSWERS_H
#define GP_ANSWERS_H

#include "worker/predict/predictor.h"
#include "worker/predict/stitch.h"

typedef struct gp_answers {
    const gp_graph *graph;  /* borrowed */
    gp_predict_answer kind; /* as requested by the client */
    bool compares;          /* the data's targets are of the kind that the network's losses take */
    uint32_t part_max;      /* samples of the largest part */
    size_t sample_bytes;    /* per sample in scores */
    uint32_t place_count;   /* per sample; 0: the network gives values, not classes */
    float *largest;         /* [place_count]: the largest score of the present sample */
    int32_t *predicted;     /* [place_count]: its class */

    /* Of the present part. */
    uint8_t *scores; /* [part_max, sample_bytes]: scores or classes; NULL: the client requested sums only */
    gp_buffer rows;  /* instead of scores, for whole images: height, width and classes of each */
    double sums[GP_SUMS];    /* written by the plan, or for whole images here */
    int32_t *labels;         /* [part_max]: class of a sample, if the data has classes */
    gp_confusion *confusion; /* NULL: not requested, nothing to compare with, or too many classes */
    uint32_t labelled;       /* samples with something to compare with */
    uint64_t excluded;       /* targets without a class or value, of samples that could be read */
    uint8_t *skipped;        /* [part_max], 1: the sample could not be read */
    uint32_t skipped_count;
} gp_answers;

/* Allocate what the answers of a prediction need. Set graph, kind, compares and part_max before; release with
 * gp_answers_deinit() also on failure.
 *   whole  images have any size, and rows are answered instead of scores
 * GP_EINVAL: the client requested classes of a network that gives values. */
gp_status gp_answers_init(gp_answers *answers, bool whole, gp_error *err);
void gp_answers_deinit(gp_answers *answers);
void gp_answers_clear(gp_answers *answers); /* before each part */

/* Mark a sample as skipped. target: set to "missing"; may be NULL. at: position in the part. */
void gp_answers_skip(gp_answers *answers, uint32_t at, void *target);
/* Read the targets of `count` samples from position `at` of the part: their labels, and what is missing. A class that the
 * network does not have becomes a missing one. */
void gp_answers_read_targets(gp_answers *answers, void *targets, uint32_t count, uint32_t at);
/* Store what a call of the plan computed for these samples. targets: read if there is a confusion matrix. */
void gp_answers_store(gp_answers *answers, const float *scores, const int32_t *targets, uint32_t count,
                      uint32_t at);
/* Store and compare one whole image. */
gp_status gp_answers_store_image(gp_answers *answers, const gp_stitched *image, uint32_t at, gp_error *err);
/* Return the part's result; borrowed until the next gp_answers_clear(). */
gp_predicted gp_answers_get(const gp_answers *answers, uint64_t first, uint32_t count);

#endif
