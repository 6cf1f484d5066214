/* edit.h -- surgery on a network and its weights: transfer learning.
 *
 *   gp_edit_new() -> remove, add, head, set, freeze, in any order -> gp_edit_finish()
 *
 * Layers that stay keep their weights; what is new is initialised.  What happened is found by comparing the network as
 * it became with the network as it was, so the list tells what was done and not what was asked for. */
#ifndef GP_EDIT_H
#define GP_EDIT_H

#include "common/model/graph/graph.h"

typedef struct gp_edit gp_edit;

/* gp_edit_new -- begin with a network.
 *   spec     copied.  One that ends in no loss gets crossentropy; a softmax before a loss that has one in it (crossentropy,
 *            pixelclassification, dice) is taken out
 *   weights  the blob of gp_graph_new(spec), borrowed until gp_edit_finish(); NULL = none
 * GP_EINVAL: the network makes no sense as it is. */
gp_status gp_edit_new(gp_edit **out, const gp_netspec *spec, const float *weights, gp_error *err);
void gp_edit_free(gp_edit *edit); /* accepts NULL */

/* Remove the last `count` layers in the order of `net show`, losses counted.  GP_EINVAL: there are not so many, or none
 * would be left. */
gp_status gp_edit_remove_last(gp_edit *edit, uint32_t count, gp_error *err);

/* The same for a layer, by name, and all that stand behind it. */
gp_status gp_edit_remove_from(gp_edit *edit, const char *layer, gp_error *err);

/* gp_edit_add -- append a layer that reads the one before it:
 *   "[NAME=]KIND[:VALUE][,setting=value...][,inputs=A+B]"     fc:55,weight-learn-rate-factor=10
 * VALUE is that of the kind's first setting (fc: outputs, conv2d: channels); a list goes on behind commas
 * (kernel=3,5).  Without NAME it is called as its kind, with a number where that is taken. */
gp_status gp_edit_add(gp_edit *edit, const char *text, gp_error *err);

/* What a new head is like. */
typedef struct gp_edit_head {
    uint32_t classes;
    double weight_learn_rate, bias_learn_rate; /* factors; 1 = like the others */
} gp_edit_head;

/* gp_edit_set_head -- put a new head for so many classes in the place of the old one, of the same kind and name: of the
 * fc, convolution or transposed convolution that the network's scores come from, past layers without weights (pooling,
 * flatten, dropout, activations).  Class weights of the loss go.
 * GP_EINVAL: fewer than 2 classes; no such layer is found: the last layers are listed. */
gp_status gp_edit_set_head(gp_edit *edit, const gp_edit_head *head, gp_error *err);

/* The number of classes that the present head scores; 0 = there is none that gp_edit_set_head() would find. */
uint32_t gp_edit_classes(const gp_edit *edit);

/* gp_edit_set -- "LAYER.setting=value", a setting of the layer's kind or a factor; or of the input:
 * "input.scale=N", "input.offset=N" (a number, or one per channel), "input.size=CxHxW",
 * "input.normalization=TEXT" (normalization.h). */
gp_status gp_edit_set(gp_edit *edit, const char *text, gp_error *err);

/* gp_edit_freeze -- learn-rate factors of 0 for a layer and all before it in the order of `net show`.  Statistics of batch
 * norms among them still follow the data, as in MATLAB; momentum=0 holds them.  GP_EINVAL: none of them learns. */
gp_status gp_edit_freeze(gp_edit *edit, const char *layer, gp_error *err);

/* Learn-rate factors of 1 for all layers. */
void gp_edit_unfreeze(gp_edit *edit);

typedef enum gp_edit_action {
    GP_EDIT_REMOVED,
    GP_EDIT_ADDED,
    GP_EDIT_CHANGED,     /* other settings, the same weights */
    GP_EDIT_INITIALIZED, /* kept, but its weights have another shape now and are new */
    GP_EDIT_FROZEN,      /* was not before */
} gp_edit_action;

typedef struct gp_edit_change {
    gp_edit_action action;
    char layer[GP_NAME_MAX]; /* or "input" */
    const char *kind;        /* "" for the input */
    char settings
        [160]; /* "outputs=55 weight-learn-rate-factor=10": those that are not the default, as far as they fit */
    gp_shape output;
    int64_t parameters; /* learned ones */
} gp_edit_change;

typedef struct gp_edited {
    gp_netspec *spec;
    gp_graph *graph;
    float *weights; /* NULL where the network had none */
    gp_edit_change *changes;
    uint32_t change_count;
} gp_edited;

/* gp_edit_finish -- the network as it became; the edit may only be freed afterwards.
 *   out         all of it owned by the caller: gp_edited_deinit(), or take a member and set it to NULL
 *   rule, seed  of new weights
 * GP_EINVAL: it makes no sense as it is now; the layer is named. */
gp_status gp_edit_finish(gp_edit *edit, gp_init_rule rule, uint64_t seed, gp_edited *out, gp_error *err);
void gp_edited_deinit(gp_edited *edited);

/* "removed", "added", ... */
const char *gp_edit_action_name(gp_edit_action action);

#endif
