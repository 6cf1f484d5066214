/* trainer_state.h -- what trainer.c builds and trainer_run.c runs.  Private to trainer*.c. */
#ifndef GP_TRAINER_STATE_H
#define GP_TRAINER_STATE_H

#include "common/data/loader/loader.h"
#include "common/model/train_options.h"
#include "worker/train/checkpoint.h"
#include "worker/train/loss_scale.h"
#include "worker/backend/cpu/factors.h"
#include "worker/optim/optim.h"
#include "worker/train/trainer.h"
#include "worker/train/tuning.h"

/* The head of the arena: float64 sums over ranks, reduced once a step.  The first GP_SUMS are the plan's. */
enum { HEADER_STOP = GP_SUMS, HEADER_PAUSE, HEADER_SAMPLES, HEADER_COUNT };

/* What a call computes with `reproducible`: by one thread, rounded once, added up as integers (exact.h). */
enum { REPRODUCIBLE_BLOCK = 16 };

/* The head of the exact arena: GP_SUMS high words, as many low ones, then plain counts. */
enum { EXACT_STOP = 2 * GP_SUMS, EXACT_PAUSE, EXACT_SAMPLES, EXACT_BAD, EXACT_COUNT };

/* Slots of the loader: one in use, one ready, one being filled. */
/* Batches ahead of the step: at first and at least, and the memory that more of them may take. */
enum { LOADER_DEPTH = 3, LOADER_BYTES_MAX = 256 << 20 };

typedef struct bucket {
    size_t first, count; /* float32 elements of the blob */
} bucket;

/* One call: a range of the epoch's order. */
typedef struct step_part {
    uint32_t epoch, first, count; /* request to the loader; epoch from 0 */
    uint64_t position;            /* of its first sample in the mini-batch */
    uint32_t batch;               /* samples of the whole step */
    bool first_call, last_call;   /* of our share of the step */
    bool last_step;               /* of the epoch */
} step_part;

/* Walks the calls of all steps in order.  Two of these run through a training: what to request, what to run. */
typedef struct cursor {
    uint32_t epoch, first, done; /* epoch from 0; first position of the batch; samples of our share before */
} cursor;

/* A step that the device has and that we have not heard of yet (trainer_ahead.c). */
typedef struct step_ahead {
    step_part last;
    cursor after;
    double learn_rate, data_ms;
    uint32_t samples; /* ours */
    bool due;         /* something follows it before the next step may begin, on all ranks alike */
} step_ahead;

/* One copy of parameters and state for all ranks (trainer_shard.c); blobs. */
typedef struct shards {
    float *parameters[2], *state[2];     /* of the step committed, and where the next ones go */
    uint32_t now;                        /* which of the two is committed */
    float *gradients[GP_COMM_WORLD_MAX]; /* of each rank, as they lie here */
} shards;

struct gp_trainer {
    gp_train_options options;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_train_control *control;
    uint32_t rank, world, world_batch; /* world_batch: samples per step over all ranks */
    uint32_t micro_batch;              /* samples per call, at most */
    double *loads;                     /* [world] shares of the ranks; NULL: equal */
    gp_netspec *spec;
    gp_graph *graph;
    gp_store *data, *validation; /* validation may be NULL */
    bool kept_stores;            /* they are in a held state: not ours to close */
    uint64_t skipped[2];         /* of data and validation, that an earlier group has told of */
    gp_augment augment;          /* of the training data; validation has its crop only */
    gp_store_info shape;         /* of the training data when it is augmented: what the network sees */
    gp_sampler sampler, validation_sampler;
    gp_loader *loader, *validation_loader;
    gp_comm *comm;
    double *header;   /* [HEADER_COUNT], in the arena; own memory where `exact` is what is exchanged */
    float *gradients; /* the blob, likewise */
    bool own_sums;    /* both are memory of our own */
    int64_t *exact; /* with `reproducible`, in the arena: [EXACT_COUNT], then the blob's high and low words */
    float *parameters; /* the blob; with `sharded` that of all ranks */
    bool sharded;
    shards shards;
    size_t shard_minimum; /* parameters of the smallest network that is sharded */
    gp_factor *factors;   /* [factor_count] weights whose gradients are never there (trainer_factors.c) */
    uint32_t factor_count;
    float *best; /* the blob of the lowest validation loss so far; NULL where the last weights are kept */
    gp_plan *plan, *validation_plan;
    gp_coupling coupling; /* sums NULL: not synchronised */
    gp_optim *optim;
    bool kept;     /* the plan has parameters and state on its device (trainer_keep.c) */
    bool stale;    /* and they moved since they were fetched */
    bool lost;     /* and the device does not give them any more */
    bool resident; /* and the training data */
    gp_resident data_there;
    gp_augment_draw *draws;           /* of a call's samples; NULL unless resident data are augmented */
    step_ahead ahead[GP_STEPS_AHEAD]; /* the oldest first */
    uint32_t ahead_count;
    gp_tuning tuning; /* while plans are compiled; choices NULL: by rule */
    uint32_t tuning_root;
    int64_t tuning_given_ns;
    char libraries[GP_LIBRARIES_BYTES];
    char *plans;       /* what was chosen, as a document (tuning.h); NULL: nothing */
    bool plans_held;   /* by the group before, or by one that held it */
    char planned[480]; /* to be told of it */
    char network[300]; /* what fast-multinode found; "" = not asked */
    bool network_slow;
    int64_t left_ns; /* when a rank was first seen to have left; 0: none has */
    int64_t join_ns; /* when joining began; 0: not joining */
    bucket *buckets; /* of what is exchanged: not of frozen tensors */
    uint32_t bucket_count;
    gp_checkpoint_frame frame;
    gp_saver *saver;   /* of rank 0; NULL without a checkpoint-path */
    char resumed[480]; /* a note on the checkpoint that was resumed; "": none */
    char damaged[240]; /* the damaged checkpoint that was skipped for it, and why; "": none */
    char *classes;     /* JSON array of names */
    /* State of a run. */
    uint64_t step;         /* committed */
    uint32_t epoch, first; /* where the next step begins: epoch from 0, position in its order */
    bool stops, pauses;    /* some rank was asked to: no step is begun any more */
    bool owes_checkpoint;
    bool owes_validation;       /* of the last step; it is due before the next */
    gp_train_validation judged; /* the last validation, of whatever group; step 0: there was none */
    uint64_t excluded;          /* targets of that validation without a class or value, over all ranks */
    bool blank;            /* parameters are not initialised: another rank is expected to have the state */
    bool again;            /* a group before this one was left by a death */
    int64_t elapsed_ns;    /* since the first step, when this group begins */
    uint32_t buckets_done; /* exchanged in this step */
    int64_t exchange_ns;   /* of this step */
    int64_t begin_ns;      /* when the first step began */
    double loss;           /* of the last committed step */
    gp_loss_scale loss_scale;
    double best_loss;  /* of the validations so far; the same on all ranks */
    int64_t no_better; /* validations since */
};

/* ---- trainer_data.c ---- */

gp_status gp_trainer_open_data(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err);
/* Sizes of batch and call, from options and data. */
gp_status gp_trainer_check_batch(gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_new_loaders(gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_name_classes(gp_trainer *trainer, gp_error *err);
/* Our share of `total` samples: of rank `rank` samples [*first, *first + *count), whole blocks with `reproducible`. */
void gp_trainer_share(const gp_trainer *trainer, uint32_t total, uint32_t rank, uint32_t *first,
                      uint32_t *count);

/* ---- trainer_group.c ---- */

gp_status gp_trainer_cut_buckets(gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_join(gp_trainer *trainer, const gp_comm_rendezvous *group, gp_error *err);
gp_status gp_trainer_check_layout(gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_check_data(gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_couple(gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_compile(gp_trainer *trainer, gp_error *err);
/* The plans as a rank of the group to come will have them, but without a group: in memory of our own. */
gp_status gp_trainer_rehearse(gp_trainer *trainer, gp_error *err);
/* For gp_batch: NULL unless batch norm is synchronised. */
const gp_coupling *gp_trainer_coupling(const gp_trainer *trainer);

/* ---- trainer_tuning.c ---- */

/* Around compile: by which engines, the same on all ranks; collective. */
gp_status gp_trainer_tune(gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_tuned(gp_trainer *trainer, gp_error *err);

/* ---- trainer_keep.c ---- */

/* After compile: whether steps stay on the device is decided, by all ranks alike. */
gp_status gp_trainer_keep(gp_trainer *trainer, gp_error *err);
void gp_trainer_keep_end(gp_trainer *trainer); /* when plans are gone */
/* The host's parameters and state are those of the last committed step; nothing to do but for kept ones. */
gp_status gp_trainer_fetch(gp_trainer *trainer, gp_error *err);
/* The same of parameters alone, for who only computes with them. */
gp_status gp_trainer_fetch_parameters(gp_trainer *trainer, gp_error *err);

/* ---- trainer_ahead.c ---- */

/* The next step that the device has done, in the order of the steps: *now is behind its last call.  Others are begun
 * before it is waited for, unless something follows it first. */
gp_status gp_trainer_kept_step(gp_trainer *trainer, cursor *now, cursor *ahead, step_part *last,
                               gp_train_record *record, gp_error *err);
/* After a failure, its cause: no step is committed any more.  Those that were are as if they had been heard of before it.  A device
 * that fails even then ends the process: it is one more death, and the others have the state. */
void gp_trainer_kept_halt(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done,
                          const gp_error *cause);

/* ---- trainer_run.c ---- */

/* The call behind `at`, which moves on; false: there is none. */
bool gp_trainer_next_call(const gp_trainer *trainer, cursor *at, step_part *out);
/* Of a step, by number. */
double gp_trainer_learn_rate(const gp_trainer *trainer, uint64_t step, uint32_t epoch);
/* Whether validation or a checkpoint follows that step (of which `last` is the last call); the same on all ranks. */
bool gp_trainer_due_after(const gp_trainer *trainer, const step_part *last, uint64_t step);
/* Whether validation is owed after the step that was counted last. */
bool gp_trainer_owes_after(const gp_trainer *trainer, const step_part *last);
gp_status gp_trainer_check_stop(const gp_trainer *trainer, gp_error *err);
gp_status gp_trainer_request(gp_trainer *trainer, cursor *ahead, gp_error *err);
/* The header is that of a step that was committed: it counts, and the record is filled in but for its times. */
void gp_trainer_count_step(gp_trainer *trainer, const step_part *last, double learn_rate,
                           gp_train_record *record);
/* The loss scale moves on, and the record has what the step had of it; skipped: it is not to be committed.  before: steps
 * counted before it.  GP_EDIVERGED: not for ever, no scale helps a network whose gradients have no value. */
gp_status gp_trainer_scale(gp_trainer *trainer, uint64_t before, gp_train_record *record, gp_error *err);
/* The step's loss is not finite; collective. */
gp_status gp_trainer_diverged(gp_trainer *trainer, const step_part *last, double loss, gp_error *err);

/* ---- trainer_exchange.c ---- */

/* One more sign of life for who watches `control`. */
void gp_trainer_progress(gp_trainer *trainer);
/* gp_ready_fn, of a trainer. */
gp_status gp_trainer_exchange(void *context, size_t final_count, gp_error *err);
/* Sum the header over all ranks: what the losses added up, whether a rank was asked to stop or to pause, and `count` into
 * header[HEADER_SAMPLES]: samples of a step, or excluded targets of a validation. */
gp_status gp_trainer_exchange_header(gp_trainer *trainer, uint64_t count, gp_error *err);
/* With `reproducible`: all words to 0; a call's sums added to them; all ranks' added up. */
void gp_trainer_exact_begin(gp_trainer *trainer, bool gradients);
void gp_trainer_exact_take(gp_trainer *trainer, bool gradients);
gp_status gp_trainer_exact_exchange(gp_trainer *trainer, gp_error *err);

/* ---- trainer_shard.c ---- */

/* Whether this training keeps one copy of its state for all ranks; they all come to the same answer. */
bool gp_trainer_shards(const gp_trainer *trainer);
/* Bytes of the arena for it. */
size_t gp_trainer_shard_bytes(const gp_trainer *trainer);
/* Free the own copy of a rank whose copy nobody will read. Before the group takes its memory. */
void gp_trainer_shard_release(gp_trainer *trainer);
/* Hand our parameters and state over; collective. */
gp_status gp_trainer_shard_state(gp_trainer *trainer, gp_error *err);
/* Add up and update our shares, and commit the step with all ranks: on failure nobody has committed. */
gp_status gp_trainer_shard_commit(gp_trainer *trainer, double weight, double learn_rate, gp_error *err);

/* ---- trainer_factors.c ---- */

/* Which weights' gradients the ranks make from what they are products of, before they join: all come to the same list. */
gp_status gp_trainer_choose_factors(gp_trainer *trainer, gp_error *err);
/* Bytes of the arena for them. */
size_t gp_trainer_factor_bytes(const gp_trainer *trainer);
/* Where they are for all ranks to read and write, and the graph's ops put in order for them; in the group. */
gp_status gp_trainer_place_factors(gp_trainer *trainer, gp_error *err);
/* That of a parameter; NULL: it has a gradient. */
const gp_factor *gp_trainer_factor(const gp_trainer *trainer, uint32_t parameter);
/* A thread's part of our rank's rows of these weights: made and updated. */
void gp_trainer_update_factor(const gp_trainer *trainer, const gp_optim_pass *pass, const gp_factor *factor,
                              uint32_t thread, uint32_t threads);

/* ---- trainer_held.c ---- */

/* That state instead of the initial one; false: it is none of this training. */
bool gp_trainer_take(gp_trainer *trainer, const gp_train_held *held);
/* The store of that role that the group before had open, and that is ours then; NULL: there is none. */
gp_store *gp_trainer_take_store(gp_trainer *trainer, const gp_trainer_setup *setup, bool validation);
/* A group that came to nothing: the next one does not open them again.  The loaders are gone. */
void gp_trainer_return_stores(gp_trainer *trainer, gp_train_held *held);
/* What was made before there is a group: the data, which the trainer does not close then.  NULL: there are none, or they are not
 * to be kept. */
gp_train_held *gp_trainer_hold_data(gp_trainer *trainer, uint64_t lease);
/* The furthest state of any rank becomes that of all; collective. */
gp_status gp_trainer_agree(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err);

/* ---- trainer_population.c ---- */

/* The running statistics of the kept weights become those of all training data. */
gp_status gp_trainer_population(gp_trainer *trainer, gp_error *err);

/* ---- trainer.c ---- */

/* The parameters that a training begins with. */
gp_status gp_trainer_initialize(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err);

/* The state as it stands, its blobs borrowed. */
void gp_trainer_checkpoint(gp_trainer *trainer, gp_checkpoint *out);
/* Step, place in the data and what was judged so far are those; the blobs are copied by whoever has them. */
void gp_trainer_stand(gp_trainer *trainer, const gp_checkpoint *at);

#endif
