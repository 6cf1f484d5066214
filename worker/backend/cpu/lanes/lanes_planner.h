/* Planning state, shared by lanes_fuse.c (merged and dead ops), lanes_place.c (buffers, views,
 * steps) and lanes_plan.c (steps for all ops). */
#ifndef GP_LANES_PLANNER_H
#define GP_LANES_PLANNER_H

#include "worker/backend/cpu/lanes/lanes.h"

/* A value's properties during planning. */
typedef struct lanes_place {
    int32_t channels, height, width; /* full shape */
    /* size of the part that is read */
    int32_t live_height, live_width;
    int32_t border[4]; /* padding for convolutions: top, left, bottom, right */
    uint32_t root;     /* value whose buffer this value shares (reshape) */
    /* for a gradient: the value that it belongs to; otherwise itself; LANES_NONE: not in this
     * segment */
    uint32_t partner;
    uint32_t buffer;  /* valid for roots; LANES_NONE: not yet written or loaded */
    uint32_t readers; /* ops that read the value, plus one if it crosses the segment border */
    bool dense;       /* some op reads it as one vector: no padding, no dead rows */
} lanes_place;

/* Buffer and lifetime in scratch memory. */
typedef struct lanes_buffer {
    size_t floats, offset;
    uint32_t first, last; /* first and last step that use it */
} lanes_buffer;

/* An op's role after fusion. */
typedef enum lanes_note {
    LANES_NOTE_PLAIN,
    LANES_NOTE_MERGED,
    LANES_NOTE_RELU,
    LANES_NOTE_POOL,
    LANES_NOTE_UNPOOL,
    LANES_NOTE_WINOGRAD
} lanes_note;

/* Planning state for one segment. It stores the first error; all functions do nothing
 * afterwards. */
typedef struct lanes_planner {
    gp_status status;
    gp_error *err;
    lanes_segment *segment;
    const gp_segment_request *request;
    const gp_graph *graph;
    const gp_op *ops;
    uint32_t count;
    bool fuse, winograd;
    lanes_place *places;
    lanes_note *notes; /* per op */
    /* per op. For a conv with a fused relu or pool: that op's index; for a backward op: conv op
     * index. */
    uint32_t *mates;
    uint32_t *masks; /* per op: for a fused conv, the mask buffer */
    uint32_t *kept;  /* per op: for a Winograd conv, the transformed input buffer */
    lanes_buffer *buffers;
    uint32_t buffer_count;
    lanes_step lost; /* step after an error */
} lanes_planner;

/* Fill in the places and, if p->fuse is set, the notes and mates. */
void gp_lanes_fuse(lanes_planner *p);

/* Return true if another segment reads or writes the value, so that it has a plan buffer. */
bool gp_lanes_crosses(const lanes_planner *p, uint32_t value);

/* Return true if the fast kernels support a convolution with this window, whose input or input
 * gradient is x. */
bool gp_lanes_conv_is_fast(const lanes_planner *p, const gp_window *window, uint32_t x);

/* Return true if the fast backward data step writes every dx pixel; see lanes_fuse.c. */
bool gp_lanes_conv_data_reaches(const lanes_planner *p, const gp_op *op);

/* Add a scratch buffer and return the number. gp_lanes_place_buffers() assigns the offset later. */
uint32_t gp_lanes_buffer_add(lanes_planner *p, size_t floats);

/* Assign offsets to all buffers, from the lifetimes implied by the steps. */
void gp_lanes_place_buffers(lanes_planner *p);

/* Give a value a buffer, with zeros around it if a convolution reads them. */
void gp_lanes_place_make(lanes_planner *p, uint32_t value, uint32_t op);

/* Ensure that a value is in scratch memory; load values from outside the segment at their first
 * use. */
void gp_lanes_value_read(lanes_planner *p, uint32_t value, uint32_t op);

/* Store a value to the plan buffer if it crosses the segment border. */
void gp_lanes_value_store(lanes_planner *p, uint32_t value, uint32_t op);

/* Append a step that reads x and z and writes y, and return it; each operand may be GP_NO_VALUE. It
 * is valid until the next step is appended. After an error it is not in the segment. */
lanes_step *gp_lanes_step_make(lanes_planner *p, lanes_step_kind kind, uint32_t op, uint32_t x, uint32_t z,
                               uint32_t y);

#endif
