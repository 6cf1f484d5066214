/* Device-resident training. Private to this folder.
 *
 *   resident.c    state on the device; gradient buckets; the commit
 *   feed.c    sources of samples
 *   steps.c   calls and steps as graphs; results for the host; halting
 *
 * Each call is one graph. The graph of a step's last call includes the exchange and the commit:
 *
 *   main   turn, feed | forward | backward ...........................| latch | commit | tell
 *   peers                            bucket 0   bucket 1 ...   header |
 *
 * The graph contains no decision of the host, so the host launches the next step while this one
 * runs. */
#ifndef GP_CUDA_RESIDENT_H
#define GP_CUDA_RESIDENT_H

#include "worker/backend/cuda/plan/slots.h"

/* Sources of samples. A slot contains [call | targets | draws | samples]; parts may be empty. */
typedef struct gp_feed {
    gp_slots slots;
    size_t targets_at, draws_at, samples_at; /* offsets in a slot */
    uint64_t calls;
    char *locked; /* page-locked memory of the caller; NULL: none */
    size_t locked_bytes;
    const gp_resident *resident; /* NULL: the host feeds samples */
    char *data, *data_targets;   /* all resident samples and targets */
    uint32_t *index;
    double *means;
} gp_feed;

/* Part of the gradient blob that is summed over the ranks. */
typedef struct kept_bucket {
    size_t first, count; /* float32 blob elements */
    uint32_t after;      /* plan step after which the bucket is complete */
} kept_bucket;

/* Parameter tensors for the kernels of the commit, and their memory. */
typedef struct commit_tables {
    uint32_t tensor_count;
    gp_kernel_tensor *tensors; /* in the order of the graph's parameters */
    gp_kernel_piece *pieces;   /* those of running means, then those of tensors that learn */
    uint32_t mean_pieces, solver_pieces;
    double *squares;     /* sums of squares of the gradients; NULL: they are not clipped */
    float *clip_factors; /* [tensor_count]; NULL: gradients are not clipped */
} commit_tables;

/* State of a device-resident training. */
typedef struct gp_resident_state {
    const gp_train_options *options;
    float *state;
    uint32_t state_blobs;
    size_t state_stride; /* elements between state blobs */
    commit_tables tables;
    gp_kernel_kept *kept;
    bool loss_ends_pass; /* the last step of the forward pass takes its time; no stamp is needed */
    /* the same memory at the host address and at the device address */
    gp_kernel_mail *mail, *mail_there;
    gp_feed feed;
    kept_bucket *buckets;
    uint32_t bucket_count;
    gp_device_graph *graphs[2][2]; /* graphs by call: first in the step or not, last or not */
    uint64_t launched, reported;   /* steps launched, and steps whose result was returned */
    bool over;                     /* the host halted the training */
    /* launch times by step; last result time; longest time from launch to result */
    int64_t launched_ns[GP_KERNEL_REPORTED], told_ns, longest_ns;
} gp_resident_state;

extern const gp_backend_steps gp_plan_steps;

void gp_resident_free(gp_plan *plan); /* Free the training state of a plan, if any. */

/* Launch the commit kernels, including the one that reports the result. ends_pass: no stamp has
 * ended the backward pass. */
gp_status gp_resident_commit(gp_plan *plan, bool ends_pass, gp_error *err);

/* Allocate the slots, or memory for all data if `resident` is given and the data fits. Changes the
 * plan's first step. */
gp_status gp_feed_open(gp_plan *plan, const gp_resident *resident, gp_error *err);

/* Free the slots, and unlock the caller's memory. */
void gp_feed_close(gp_plan *plan);

/* See gp_backend_steps for the contracts of these two functions. */
gp_status gp_feed_lock(gp_plan *plan, void *memory, size_t bytes, gp_error *err);
uint32_t gp_feed_reading(gp_plan *plan);

/* Write a call to the next slot and make the main lane wait for it. Blocks while both slots are in
 * use. */
gp_status gp_feed_fill(gp_plan *plan, const gp_step_call *call, gp_error *err);
/* call after launching everything that reads the slot */
gp_status gp_feed_used(gp_plan *plan, gp_error *err);
/* launch the kernels before the plan's own steps */
gp_status gp_feed_launch(gp_plan *plan, gp_error *err);

/* See gp_backend_steps for the contracts of these functions (steps.c). */
gp_status gp_steps_launch(gp_plan *plan, const gp_step_call *call, gp_error *err);
gp_status gp_steps_reported(gp_plan *plan, gp_step_reported *reported, gp_error *err);
gp_status gp_steps_halt(gp_plan *plan, gp_error *err);

/* Free the recorded graphs. */
void gp_steps_free_graphs(gp_plan *plan);

#endif
