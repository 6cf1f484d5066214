/* End of a step: sums, the latch, the commit over the blob, and the result for the host. Included
 * by bodies.h.
 *
 *   sums over the ranks -> latch -> statistics, norms, the optimizers of worker/optim -> tell
 *
 * Arguments of the commit kernels: f[0] parameters, f[1] gradients, f[2] and f[3] optimizer state,
 * f[4] clipping factors, d[1] reduced sums followed by the samples, tensors [n[0]], pieces,
 * number[0]: clipping method (STEP_CLIP_*). Items: 32 for each piece, so a warp processes a piece,
 * and all blobs are aligned to 16 bytes.
 *
 * The latch decides once for all later kernels, so a step is committed completely or not at all. A
 * step is not committed if the host halted the training (sums may then be undefined, so the host
 * writes `go` before it aborts them), if it has no samples, if a gradient is not finite (in fp16
 * the loss scale is then too large), or if the loss is not finite. In the last case, no later step
 * counts. */

/* Clipping method: gp_clip, or none. */
enum { STEP_CLIP_TENSOR, STEP_CLIP_GLOBAL, STEP_CLIP_ABSOLUTE, STEP_CLIP_NONE };

/* Maximum number of partial sums of squares for one tensor. */
enum { STEP_SQUARES_MAX = 1024 };

/* Step header position after the sums. */
enum { STEP_SAMPLES = BODY_SUMS, STEP_STOP, STEP_PAUSE, STEP_SUMS };

BODY int step_commits(const gp_kernel_args *a)
{
    return a->kept->commit != 0;
}

BODY uint64_t step_now_ns(void)
{
#if defined(__NVCC__) && defined(__CUDA_ARCH__) /* tests define only __CUDA_ARCH__ */
    uint64_t now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* Take the time when a pass ends. pass 0: forward pass; 1: backward pass; 2: backward pass of the
 * last call, after which the step header is written. */
BODY void pass_end(const gp_kernel_args *a, int32_t pass)
{
    uint64_t now = step_now_ns();

    if (pass == 0)
        a->kept->forward_ns += now - a->kept->mark_ns;
    else
        a->kept->backward_ns += now - a->kept->mark_ns;
    a->kept->mark_ns = now;
    if (pass != 2)
        return;
    a->d[1][STEP_SAMPLES] = (double)a->call->samples;
    a->d[1][STEP_STOP] = (double)a->call->stop;
    a->d[1][STEP_PAUSE] = (double)a->call->pause;
    *(volatile uint64_t *)&a->mail->computed = a->kept->steps + 1;
}

/* End a pass. One item. kind: see pass_end(). */
BODY void body_stamp(const gp_kernel_args *a, uint32_t i)
{
    (void)i;
    pass_end(a, a->kind);
}

/* Decide whether the step is committed. One item. number[1]: 1: no rank joined, so no sum lies
 * between the backward pass and this kernel, which also ends the pass. */
BODY void body_latch(const gp_kernel_args *a, uint32_t i)
{
    gp_kernel_kept *kept = a->kept;
    double weight = a->d[1][BODY_WEIGHT], loss = a->d[1][BODY_LOSS], t;
    uint32_t go = *(const volatile uint32_t *)&a->mail->go != 0 && !kept->bad;
    uint64_t now;

    (void)i;
    if (a->number[1] == 1)
        pass_end(a, 2);
    now = step_now_ns();
    kept->exchange_ns = now - kept->mark_ns;
    kept->mark_ns = now;
    kept->counts = go && (weight <= 0.0 || loss - loss == 0.0);
    kept->commit = kept->counts && weight > 0.0 && !(a->d[1][BODY_BAD] > 0.0);
    kept->bad = kept->bad || (go && !kept->counts);
    if (!kept->commit)
        return;
    kept->inverse_weight = (float)(1.0 / weight);
    kept->largest = (float)(kept->rule.threshold * weight);
    t = (double)++kept->solved;
    kept->rule.learn_rate = a->call->learn_rate;
    kept->rule.correction = (float)(1.0 / (1.0 - pow(kept->rule.wide_decay, t)));
    kept->rule.squared_correction = (float)(1.0 / (1.0 - pow(kept->rule.wide_squared_decay, t)));
}

/* Write the result for the host and update the loss scale, which the next step (possibly launched
 * already) reads. One item; n[0] sums. */
BODY void body_tell(const gp_kernel_args *a, uint32_t i)
{
    gp_kernel_kept *kept = a->kept;
    uint64_t number = ++kept->steps;
    gp_kernel_reported *reported = &a->mail->reported[(number - 1) % GP_KERNEL_REPORTED];

    (void)i;
    for (uint32_t k = 0; k < a->n[0]; k++)
        reported->sums[k] = a->d[1][k];
    reported->forward_ns = kept->forward_ns;
    reported->backward_ns = kept->backward_ns;
    reported->exchange_ns = kept->exchange_ns;
    reported->commit_ns = step_now_ns() - kept->mark_ns;
    reported->loss_scale = kept->loss_scale;
    if (kept->counts && kept->loss_scale > 0.0)
        gp_loss_scale_move(&kept->loss_scale, &kept->loss_scale_good, &kept->rule.loss_scale,
                           a->d[1][BODY_BAD]);
    reported->counts = kept->counts;
    reported->commit = kept->commit;
#ifdef __CUDA_ARCH__
    __threadfence_system();
    *(volatile uint64_t *)&reported->number = number;
#else
    __atomic_store_n(&reported->number, number, __ATOMIC_RELEASE);
#endif
}

/* ---- commit ---- */

/* The elements of a piece that an item processes: vectors of four from `vector` to `vectors_end`,
 * 128 elements apart, and one element at an end of the piece if `edge` is less than the piece's
 * end. */
typedef struct piece_range {
    uint32_t vector, vectors_end, edge;
} piece_range;

BODY piece_range piece_items(const gp_kernel_piece *piece, uint32_t i)
{
    const uint32_t lane = i % 32, begin = (piece->first + 3) / 4 * 4, end = piece->end / 4 * 4;
    piece_range range = { begin + 4 * lane, end, UINT32_MAX };

    if (piece->first + lane < (begin < piece->end ? begin : piece->end))
        range.edge = piece->first + lane;
    else if (lane >= 4 && begin <= end && end + lane - 4 < piece->end)
        range.edge = end + lane - 4;
    return range;
}

/* Return the clipping factor for a tensor, or for all of them, from its sum of squares. The
 * threshold applies to the mean gradient; f[1] contains sums. */
BODY float clip_factor(const gp_kernel_args *a, double squares)
{
    double limit = a->kept->rule.threshold * a->d[1][BODY_WEIGHT], norm = sqrt(squares);

    return norm > limit ? (float)(limit / norm) : 1.0f;
}

/* Sum squared gradients: d[0][tensor * STEP_SQUARES_MAX + piece], for the first pieces of each
 * tensor. A warp also adds every STEP_SQUARES_MAX-th piece after its own. After an odd number of
 * sums, the next one is set to 0. */
BODY void body_squares_part(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_piece own = a->pieces[i / 32];
    const gp_kernel_tensor *t = &a->tensors[own.tensor];
    double *out = a->d[0] + (size_t)own.tensor * STEP_SQUARES_MAX + own.index, sum = 0.0;

    if (own.index >= STEP_SQUARES_MAX)
        return;
    for (uint32_t at = own.index; at < t->pieces; at += STEP_SQUARES_MAX) {
        const gp_kernel_piece piece = a->pieces[t->first_piece + at];
        const piece_range range = piece_items(&piece, i);

        UNROLL(1)
        for (uint32_t e = range.vector; e < range.vectors_end; e += 4 * 128) {
            four g[4] = { { { 0 } } };

            for (uint32_t j = 0; j < 4; j++)
                if (e + 128 * j < range.vectors_end)
                    g[j] = *(const four *)(a->f[1] + e + 128 * j);
            for (int j = 0; j < 4; j++)
                for (int k = 0; k < 4; k++)
                    sum += (double)g[j].of[k] * (double)g[j].of[k];
        }
        if (range.edge < piece.end)
            sum += (double)a->f[1][range.edge] * (double)a->f[1][range.edge];
    }
    sum = warp_sum(sum);
    if (i % 32 == 0)
        out[0] = sum;
    else if (i % 32 == 1 && own.index % 2 == 0 && own.index + 1 == t->pieces)
        out[1] = 0.0;
}

/* Two sums, 16-byte aligned. */
typedef struct __attribute__((aligned(16))) two_sums {
    double of[2];
} two_sums;

/* d[0] -> f[4][tensor], or for STEP_CLIP_GLOBAL the sum of squares of each tensor in d[0], after
 * the partial sums of all n[0] tensors. Items: 32 for each tensor. */
BODY void body_squares_sum(const gp_kernel_args *a, uint32_t i)
{
    const uint32_t tensor = i / 32, pieces = a->tensors[tensor].pieces,
                   count = pieces < STEP_SQUARES_MAX ? pieces : STEP_SQUARES_MAX;
    const double *parts = a->d[0] + (size_t)tensor * STEP_SQUARES_MAX;
    double sum = 0.0;

    UNROLL(1)
    for (uint32_t at = 2 * (i % 32); at < count; at += 4 * 64) {
        two_sums two[4] = { { { 0 } } };

        for (uint32_t j = 0; j < 4; j++)
            if (at + 64 * j < count)
                two[j] = *(const two_sums *)(parts + at + 64 * j);
        for (int j = 0; j < 4; j++)
            sum += two[j].of[0] + two[j].of[1];
    }
    sum = warp_sum(sum);
    if (i % 32 != 0)
        return;
    if (a->number[0] == STEP_CLIP_GLOBAL)
        a->d[0][(size_t)a->n[0] * STEP_SQUARES_MAX + tensor] = sum;
    else
        a->f[4][tensor] = clip_factor(a, sum);
}

/* d[0] sums of squares of all tensors -> f[4][0]. 32 items. */
BODY void body_squares_total(const gp_kernel_args *a, uint32_t i)
{
    double sum = 0.0;

    for (uint32_t t = i; t < a->n[0]; t += 32)
        sum += a->d[0][(size_t)a->n[0] * STEP_SQUARES_MAX + t];
    sum = warp_sum(sum);
    if (i == 0)
        a->f[4][0] = clip_factor(a, sum);
}

/* Solvers of worker/optim. */
enum { STEP_SGDM, STEP_ADAM, STEP_ADAMW, STEP_RMSPROP };

/* Values that a solver uses for all elements of a piece. */
typedef struct solver_rule {
    gp_kernel_rule rule;
    float rate, l2;
    float factor, largest, inverse_weight; /* see solver_gradient() */
} solver_rule;

BODY solver_rule solver_begin(const gp_kernel_args *a, uint32_t tensor)
{
    const gp_kernel_tensor *t = &a->tensors[tensor];
    solver_rule s;

    s.rule = a->kept->rule;
    s.rate = s.rule.learn_rate * t->learn_rate_factor;
    s.l2 = s.rule.l2 * t->l2_factor;
    s.factor = a->number[0] == STEP_CLIP_GLOBAL   ? a->f[4][0]
               : a->number[0] == STEP_CLIP_TENSOR ? a->f[4][tensor]
                                                  : 1.0f;
    s.largest = a->number[0] == STEP_CLIP_ABSOLUTE ? a->kept->largest : INFINITY;
    s.inverse_weight = a->kept->inverse_weight;
    return s;
}

/* Return the clipped mean gradient for a sum of gradients. */
BODY float solver_gradient(const solver_rule *s, float sum)
{
    sum *= s->factor;
    sum = sum > s->largest ? s->largest : sum < -s->largest ? -s->largest : sum;
    return sum * s->inverse_weight;
}

/* Update one parameter. x: parameter, sum of gradients, and state of the solver. */
BODY void solver_element(const solver_rule *s, int solver, float x[4])
{
    const gp_kernel_rule *rule = &s->rule;
    float w = x[0], g = solver_gradient(s, x[1]) + (solver == STEP_ADAMW ? 0.0f : s->l2 * w);

    switch (solver) {
    case STEP_SGDM:
        x[2] = (rule->momentum == 0.0f ? 0.0f : rule->momentum * x[2]) - s->rate * g;
        x[0] = w + x[2];
        break;
    case STEP_RMSPROP:
        x[2] = rule->squared_decay * x[2] + (1.0f - rule->squared_decay) * g * g;
        x[0] = w - s->rate * g / (sqrtf(x[2]) + rule->epsilon);
        break;
    default:
        x[2] = rule->decay * x[2] + (1.0f - rule->decay) * g;
        x[3] = rule->squared_decay * x[3] + (1.0f - rule->squared_decay) * g * g;
        w = solver == STEP_ADAMW ? (1.0f - s->rate * s->l2) * w : w;
        x[0] =
            w - s->rate * rule->correction * x[2] / (sqrtf(x[3] * rule->squared_correction) + rule->epsilon);
        break;
    }
}

/* Update the parameters of a piece. `states`: number of state blobs in use. */
BODY void solver_run(const gp_kernel_args *a, uint32_t i, int solver, int states)
{
    const gp_kernel_piece piece = a->pieces[i / 32];
    const piece_range range = piece_items(&piece, i);
    solver_rule s;

    if (!step_commits(a))
        return;
    s = solver_begin(a, piece.tensor);
    for (uint32_t e = range.vector; e < range.vectors_end; e += 128) {
        four values[4];

        for (int b = 0; b < 2 + states; b++)
            values[b] = *(const four *)(a->f[b] + e);
        for (int k = 0; k < 4; k++) {
            float x[4] = { values[0].of[k], values[1].of[k], states > 0 ? values[2].of[k] : 0.0f,
                           states > 1 ? values[3].of[k] : 0.0f };

            solver_element(&s, solver, x);
            values[0].of[k] = x[0];
            values[2].of[k] = x[2];
            values[3].of[k] = x[3];
        }
        *(four *)(a->f[0] + e) = values[0];
        for (int b = 2; b < 2 + states; b++)
            *(four *)(a->f[b] + e) = values[b];
    }
    if (range.edge < piece.end) {
        float x[4] = { a->f[0][range.edge], a->f[1][range.edge], states > 0 ? a->f[2][range.edge] : 0.0f,
                       states > 1 ? a->f[3][range.edge] : 0.0f };

        solver_element(&s, solver, x);
        a->f[0][range.edge] = x[0];
        for (int b = 2; b < 2 + states; b++)
            a->f[b][range.edge] = x[b];
    }
}

BODY void body_sgdm(const gp_kernel_args *a, uint32_t i)
{
    if (a->kept->rule.momentum == 0.0f)
        solver_run(a, i, STEP_SGDM, 0);
    else
        solver_run(a, i, STEP_SGDM, 1);
}

/* Adam; kind 1: AdamW. */
BODY void body_adam(const gp_kernel_args *a, uint32_t i)
{
    if (a->kind == 1)
        solver_run(a, i, STEP_ADAMW, 2);
    else
        solver_run(a, i, STEP_ADAM, 2);
}

BODY void body_rmsprop(const gp_kernel_args *a, uint32_t i)
{
    solver_run(a, i, STEP_RMSPROP, 1);
}

/* Move running means and variances towards the step moments (optim/statistics.c). Only for pieces
 * of means. */
BODY void body_statistics(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_piece piece = a->pieces[i / 32];
    const gp_kernel_tensor t = a->tensors[piece.tensor];
    const double n = a->d[1][BODY_SUMS] * t.per_sample;

    if (n <= 0.0 || !step_commits(a))
        return;
    for (uint32_t e = piece.first + i % 32; e < piece.end; e += 32) {
        const uint64_t second = t.variance + (e - t.offset);
        double shift = (double)a->f[1][e] / n, variance = (double)a->f[1][second] / n - shift * shift;

        variance = variance > 0.0 ? variance : 0.0;
        if (n > 1.0)
            variance *= n / (n - 1.0);
        a->f[0][e] = (float)((double)a->f[0][e] + t.statistic_rate * shift);
        a->f[0][second] =
            (float)((double)a->f[0][second] + t.statistic_rate * (variance - (double)a->f[0][second]));
    }
}
