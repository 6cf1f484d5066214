/* keep.h -- a training that stays on the device.  Private to this folder.
 *
 *   keep.c    what it keeps there; buckets; the commit
 *   feed.c    where the samples of a call come from
 *   steps.c   a call, or a whole step, as one graph; what the host is told of it; the end
 *
 * A call is one graph, and the last call of a step has all that follows in it:
 *
 *   main   turn, feed | forward | backward ...........................| latch | commit | tell
 *   peers                            bucket 0   bucket 1 ...   header |
 *
 * Nothing in it is the host's to decide, so that the host launches the next step while this one runs. */
#ifndef GP_CUDA_KEEP_H
#define GP_CUDA_KEEP_H

#include "worker/backend/cuda/plan/slots.h"

/* A slot: [call | targets | draws | samples], each where it is not empty. */
typedef struct gp_feed {
    gp_slots slots;
    size_t targets_at, draws_at, samples_at; /* in a slot */
    uint64_t calls;
    const gp_resident *resident; /* NULL: samples are fed */
    char *data, *data_targets;   /* of all samples */
    uint32_t *index;
    double *means;
} gp_feed;

typedef struct kept_bucket {
    size_t first, count; /* float32 elements of the blob */
    uint32_t after;      /* the step of the plan behind which it is complete */
} kept_bucket;

typedef struct gp_kept {
    const gp_train_options *options;
    float *state;
    uint32_t state_blobs, tensor_count;
    gp_kernel_tensor *tensors; /* by offset */
    double *squares;
    gp_kernel_kept *kept;
    gp_kernel_mail *mail, *mail_there; /* the same memory, as the host and the device see it */
    gp_feed feed;
    kept_bucket *buckets;
    uint32_t bucket_count;
    gp_device_graph *graphs[2][2]; /* of a call that is the first of its step or not, and the last or not */
    uint64_t launched, told;       /* steps */
    bool over;                     /* the host has ended it */
    int64_t launched_ns[GP_KERNEL_TOLD], told_ns, longest_ns; /* when; and of a step from then to its mail */
} gp_kept;

extern const gp_backend_steps gp_plan_steps;

void gp_kept_free(gp_plan *plan); /* its part of a plan, if any */
/* Kernels of the commit, the tell included. */
gp_status gp_kept_commit(gp_plan *plan, gp_error *err);

/* Memory of the slots, or of the data if there are any and they fit; changes the plan's first step. */
gp_status gp_feed_open(gp_plan *plan, const gp_resident *resident, gp_error *err);
void gp_feed_close(gp_plan *plan);
/* The call into the next slot, which the main lane is going to wait for; waits while both are in use. */
gp_status gp_feed_fill(gp_plan *plan, const gp_step_call *call, gp_error *err);
gp_status gp_feed_used(gp_plan *plan, gp_error *err);   /* all that reads the slot is launched */
gp_status gp_feed_launch(gp_plan *plan, gp_error *err); /* the kernels before the plan's own */

/* steps.c */
gp_status gp_steps_launch(gp_plan *plan, const gp_step_call *call, gp_error *err);
gp_status gp_steps_told(gp_plan *plan, gp_step_told *told, gp_error *err);
gp_status gp_steps_halt(gp_plan *plan, gp_error *err);
void gp_steps_free_graphs(gp_plan *plan);

#endif
