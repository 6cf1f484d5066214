/* Edit a network and its weights, for transfer learning.
 *
 *   gp_edit_new() -> remove, add, set head, set, freeze, in any order -> gp_edit_finish()
 *
 * Remaining layers keep their weights; new layers are initialized. The change list compares the
 * original with the edited network, so it shows actual differences, not requested operations. */
#ifndef GP_EDIT_H
#define GP_EDIT_H

#include "common/model/graph/graph.h"

typedef struct gp_edit gp_edit; /* network under edit */

/* Start editing a network.
 *   spec     network; copied. If it has no loss, crossentropy is appended. A softmax layer before a
 *            loss that includes softmax (crossentropy, pixelclassification, dice) is removed
 *   weights  parameter blob for gp_graph_new(spec), borrowed until gp_edit_finish(); NULL: none
 * GP_EINVAL: the network is invalid. */
gp_status gp_edit_new(gp_edit **out, const gp_netspec *spec, const float *weights, gp_error *err);
void gp_edit_free(gp_edit *edit); /* accepts NULL */

/* Remove the last `count` layers, including losses, in `model show` order.
 * GP_EINVAL: no layer would remain. */
gp_status gp_edit_remove_last(gp_edit *edit, uint32_t count, gp_error *err);

/* Remove a layer and all layers after it. GP_EINVAL: there is no such layer, or it is the first
 * one. */
gp_status gp_edit_remove_from(gp_edit *edit, const char *layer, gp_error *err);

/* Append a layer that reads the previous one.
 *   text  "[NAME=]KIND[:VALUE][,setting=value...][,inputs=A+B]",
 *         such as "fc:55,weight-learn-rate-factor=10"
 * VALUE is the kind's first setting (fc: outputs, conv2d: channels). Lists contain commas
 * (kernel=3,5). Without NAME, the layer is named after its kind, with a number if that name is
 * taken. */
gp_status gp_edit_add(gp_edit *edit, const char *text, gp_error *err);

/* Properties for a new head. */
typedef struct gp_edit_head {
    uint32_t classes;
    /* learn-rate factors; 1: same rate as other layers */
    double weight_learn_rate, bias_learn_rate;
} gp_edit_head;

/* Replace the head by a new one for `classes` classes, with the same kind and name. The head is the
 * fc, conv2d or transconv2d layer that computes the scores; layers without weights may follow it
 * (pooling, flatten, dropout, activations). Class weights in the loss are removed. GP_EINVAL: fewer
 * than 2 classes, or no head was found; the message lists the last layers. */
gp_status gp_edit_set_head(gp_edit *edit, const gp_edit_head *head, gp_error *err);

/* Return the current head's class count. 0: gp_edit_set_head() would find no head. */
uint32_t gp_edit_classes(const gp_edit *edit);

/* Change a setting.
 *   text  "LAYER.setting=value": a kind setting or a factor; or one of
 *         "input.scale=N", "input.offset=N" (a number, or one per channel), "input.size=CxHxW",
 *         "input.normalization=TEXT" (normalization.h) */
gp_status gp_edit_set(gp_edit *edit, const char *text, gp_error *err);

/* Set the learn-rate factors to 0 for a layer and all layers before it, in `model show` order.
 * Batch norm statistics in these layers still adapt to the data, as in MATLAB; momentum=0
 * prevents this. GP_EINVAL: no such layer has weights. */
gp_status gp_edit_freeze(gp_edit *edit, const char *layer, gp_error *err);

/* Set all learn-rate factors to 1. */
void gp_edit_unfreeze(gp_edit *edit);

/* Kinds of changes. A remaining layer has at most one change: initialized, frozen or changed. */
typedef enum gp_edit_action {
    GP_EDIT_REMOVED,
    GP_EDIT_ADDED,
    GP_EDIT_CHANGED,     /* different settings, same weights */
    GP_EDIT_INITIALIZED, /* kept, but some weights have a new shape and are initialized */
    GP_EDIT_FROZEN,      /* no longer learns */
} gp_edit_action;

/* One difference between the original and the edited network. */
typedef struct gp_edit_change {
    gp_edit_action action;
    char layer[GP_NAME_MAX]; /* layer name, or "input" */
    const char *kind;        /* "" for the input */
    /* settings that differ from the default, such as "outputs=55 weight-learn-rate-factor=10";
     * truncated if necessary */
    char settings[160];
    gp_shape output;    /* output shape for one sample */
    int64_t parameters; /* learned parameters, without statistics */
} gp_edit_change;

/* Edit result. */
typedef struct gp_edited {
    gp_netspec *spec;
    gp_graph *graph;
    float *weights; /* parameter blob; NULL: the original network had none */
    gp_edit_change *changes;
    uint32_t change_count;
} gp_edited;

/* Build the edited network. After this call, the edit can only be freed.
 *   rule, seed  initialization rule and seed for new weights
 *   out         result, owned by the caller: call gp_edited_deinit(), or take members and set them
 *               to NULL
 * GP_EINVAL: the edited network is invalid; the message names the layer. */
gp_status gp_edit_finish(gp_edit *edit, gp_init_rule rule, uint64_t seed, gp_edited *out, gp_error *err);

/* Free all members. */
void gp_edited_deinit(gp_edited *edited);

/* Return "removed", "added", "changed", "initialized" or "frozen". */
const char *gp_edit_action_name(gp_edit_action action);

#endif
