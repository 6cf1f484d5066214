/* train_run.h -- a training and its one run.  Private to train.c and train_prepare.c. */
#ifndef GP_TRAIN_RUN_H
#define GP_TRAIN_RUN_H

#include "client/pool.h"
#include "common/data/augment.h"
#include "common/model/network.h"
#include "common/model/train_options.h"

struct gp_training {
    gp_network network; /* weights: the trained blob */
    gp_graph *graph;
    gp_training_summary summary;
    struct gp_run *run; /* NULL: it has been */
};

enum { GP_RUN_SKIPPED_MAX = 64 };

typedef struct gp_run {
    gp_pool *pool;
    const gp_train_request *request;
    gp_training *training; /* that owns it */
    gp_train_options options;
    gp_augment augment;
    gp_train_begin begin;
    char *netspec, *options_text;
    size_t netspec_bytes, options_bytes;
    uint32_t world, ready, ended;
    bool rank_ended[GP_MEMBERS_MAX];
    gp_train_facts facts;
    int stop_told;     /* highest stop that the workers know of */
    gp_error failure;  /* first by time; GP_OK = none */
    int64_t failed_ms; /* when that, or the first effect of it, was seen */
    gp_error effect;   /* told when no cause comes */
    int64_t begun_ms;  /* train_begin was sent */
    bool loading_told;
    char skipped[GP_RUN_SKIPPED_MAX][128]; /* images that some worker could not read, each once */
    uint32_t skipped_count;
} gp_run;

/* Options, network and data of the request; what can be wrong is told here. */
gp_status gp_run_prepare(gp_run *run, gp_error *err);
/* A part of the data as the training reads it. */
gp_status gp_run_open_data(gp_run *run, gp_store **store, const char *source, gp_data_role role,
                           gp_error *err);
/* What --class-weights says, into each loss of the network that has class weights. */
gp_status gp_run_weigh_classes(gp_run *run, gp_error *err);
/* options_text, with what depends on the number of workers worked out: `world` is known. */
gp_status gp_run_write_options(gp_run *run, gp_error *err);

#endif
