/* What the hooks on a block pool of vLLM do in the commonest case: find for whom the engine works,
   list the blocks, hand them to an emitter. `pool_hooks.py` has all of it; what is not common is
   left to that by calling what stands there. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

int add_hooks(PyObject *module);

enum { GROUP_BYTES = 4, TAIL = 8 };

#define NAMES(X)                                                                                  \
    X(hkvtool_state) X(hooks) X(waiting) X(tell_lookup) X(removed) X(tell_removed) X(block_id)    \
    X(is_null) X(pool) X(f_code) X(f_locals) X(self) X(request_id) X(kv_cache_group_id) X(groups) \
    X(units) X(sliding) X(tell) X(alloc) X(free) X(slide) X(publish) X(front) X(evict)            \
    X(invalidate) X(block_hash) X(comparing) X(fail) X(hash) X(keyed) X(unpublish)
#define DECLARE(name) static PyObject *n_##name;
NAMES(DECLARE)

/* What a function here knows: see `make_teller`. */
enum { HOOKS, OTHERWISE, KINDS, GETFRAME, ONE, KNOWN, NAME };

typedef struct {
    PyObject *req, *number;
    int slides;
} Holder;

static int is_true(PyObject *owner, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(owner, name);
    int found = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return found;
}

/* The pool's state where these hooks follow it; NULL without an exception where they do not. */
static PyObject *state_of(PyObject *ctx, PyObject *pool)
{
    PyObject *state = PyObject_GetAttr(pool, n_hkvtool_state);
    if (state == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
        return NULL;
    }
    PyObject *owner = PyObject_GetAttr(state, n_hooks);
    int ours = owner == PyTuple_GetItem(ctx, HOOKS);
    Py_XDECREF(owner);
    if (!ours)
        Py_CLEAR(state);
    return state;
}

/* For whom the caller of the wrapper works: 1 where that is a manager's method for a request. */
static int find_holder(PyObject *ctx, Holder *who)
{
    int found = -1;
    PyObject *code = NULL, *key = NULL, *kind, *names = NULL, *manager = NULL;
    PyObject *frame = PyObject_CallFunctionObjArgs(
        PyTuple_GetItem(ctx, GETFRAME), PyTuple_GetItem(ctx, ONE), NULL);
    who->req = who->number = NULL;
    if (frame == NULL || (code = PyObject_GetAttr(frame, n_f_code)) == NULL
        || (key = PyLong_FromVoidPtr(code)) == NULL)
        goto end;
    /* A `_Kind` of `caller.py`. */
    kind = PyDict_GetItemWithError(PyTuple_GetItem(ctx, KINDS), key);
    if (kind == NULL || PyTuple_GetItem(kind, 1) != Py_True) {
        found = PyErr_Occurred() ? -1 : 0;
        goto end;
    }
    who->slides = PyTuple_GetItem(kind, 2) == Py_True;
    if ((names = PyObject_GetAttr(frame, n_f_locals)) == NULL
        || (manager = PyObject_GetItem(names, n_self)) == NULL
        || (who->req = PyObject_GetItem(names, n_request_id)) == NULL)
        goto end;
    who->number = PyObject_GetAttr(manager, n_kv_cache_group_id);
    if (who->number == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
        goto end;
    PyErr_Clear();
    found = who->number != NULL && who->number != Py_None && PyUnicode_Check(who->req);
end:
    Py_XDECREF(manager);
    Py_XDECREF(names);
    Py_XDECREF(key);
    Py_XDECREF(code);
    Py_XDECREF(frame);
    return found;
}

static void forget(Holder *who)
{
    Py_CLEAR(who->req);
    Py_CLEAR(who->number);
}

/* The value of a dictionary that is an attribute, borrowed from it; NULL where there is none. */
static PyObject *looked_up(PyObject *owner, PyObject *name, PyObject *key)
{
    PyObject *table = PyObject_GetAttr(owner, name);
    PyObject *found = table == NULL ? NULL : PyDict_GetItemWithError(table, key);
    Py_XINCREF(found);
    Py_XDECREF(table);
    return found;
}

static PyObject *otherwise(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    PyObject *given = PyTuple_New(count), *result;
    if (given == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(given, i, args[i]);
    }
    result = PyObject_CallObject(PyTuple_GetItem(ctx, OTHERWISE), given);
    Py_DECREF(given);
    return result;
}

/* The end of a function here: what went wrong takes the hook off and never reaches the engine,
   unless `fail` raises it, a guard's verdict. */
static PyObject *ended(PyObject *ctx, PyObject *result)
{
    PyObject *type, *value, *trace, *made;
    if (result != NULL || !PyErr_ExceptionMatches(PyExc_Exception))
        return result;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    made = PyObject_CallMethodObjArgs(
        PyTuple_GetItem(ctx, HOOKS), n_fail, PyTuple_GetItem(ctx, NAME), value, NULL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return made;
}

static PyObject *emitter(PyObject *hooks, PyObject *name)
{
    PyObject *tell = PyObject_GetAttr(hooks, n_tell);
    PyObject *found = tell == NULL ? NULL : PyObject_GetAttr(tell, name);
    Py_XDECREF(tell);
    return found;
}

static PyObject *name_of(PyObject *ctx, PyObject *keyed, const char *tail)
{
    PyObject *bytes = PyBytes_FromStringAndSize(tail, TAIL), *found = NULL;
    if (bytes == NULL)
        return NULL;
    found = PyDict_GetItemWithError(PyTuple_GetItem(ctx, KNOWN), bytes);
    Py_XINCREF(found);
    if (found == NULL && !PyErr_Occurred())
        found = PyObject_CallMethodObjArgs(keyed, n_hash, bytes, NULL);
    Py_DECREF(bytes);
    return found;
}

/* What `PoolState.tell_removed` does: a hash alone here, more than one there. */
static int tell_removed(PyObject *ctx, PyObject *state, PyObject *reason)
{
    PyObject *hooks = PyTuple_GetItem(ctx, HOOKS), *made = NULL;
    PyObject *pair, *key, *id = NULL, *number = NULL, *group = NULL, *keyed = NULL, *name = NULL;
    PyObject *emit = NULL, *none = NULL;
    PyObject *removed = PyObject_GetAttr(state, n_removed);
    if (removed == NULL || !PyList_CheckExact(removed) || PyList_Size(removed) != 1)
        goto all;
    pair = PyList_GetItem(removed, 0);
    key = PyTuple_CheckExact(pair) && PyTuple_Size(pair) == 2 ? PyTuple_GetItem(pair, 1) : NULL;
    if (key == NULL || !PyBytes_CheckExact(key) || PyBytes_Size(key) < TAIL + GROUP_BYTES)
        goto all;
    const char *end = PyBytes_AsString(key) + PyBytes_Size(key) - GROUP_BYTES;
    const unsigned char *tail = (const unsigned char *)end;
    number = PyLong_FromLong((long)tail[0] << 24 | tail[1] << 16 | tail[2] << 8 | tail[3]);
    group = number == NULL ? NULL : looked_up(state, n_groups, number);
    if (group == NULL)
        goto all;
    id = PyTuple_GetItem(pair, 0);
    if ((keyed = PyObject_GetAttr(hooks, n_keyed)) == NULL
        || (name = name_of(ctx, keyed, end - TAIL)) == NULL
        || (emit = emitter(hooks, n_unpublish)) == NULL)
        goto end;
    PyObject *blocks = Py_BuildValue("[O]", id), *hashes = Py_BuildValue("[O]", name);
    if (blocks != NULL && hashes != NULL && (none = PyList_New(0)) != NULL
        && PyObject_SetAttr(state, n_removed, none) == 0)
        made = PyObject_CallFunctionObjArgs(emit, group, blocks, hashes, reason, NULL);
    Py_XDECREF(blocks);
    Py_XDECREF(hashes);
    goto end;
all:
    if (!PyErr_Occurred())
        made = PyObject_CallMethodObjArgs(state, n_tell_removed, reason, NULL);
end:
    Py_XDECREF(none);
    Py_XDECREF(emit);
    Py_XDECREF(name);
    Py_XDECREF(keyed);
    Py_XDECREF(group);
    Py_XDECREF(number);
    Py_XDECREF(removed);
    Py_XDECREF(made);
    return made == NULL ? -1 : 0;
}

/* --- blocks handed out: (blocks, pool) ------------------------------------------------------ */

static int tell_waiting(PyObject *ctx, PyObject *hooks, PyObject *state, PyObject *reason)
{
    PyObject *waiting = PyObject_GetAttr(hooks, n_waiting);
    int gone = waiting == NULL ? -1 : 0;
    if (waiting != NULL && waiting != Py_None) {
        PyObject *made = PyObject_CallMethodObjArgs(hooks, n_tell_lookup, NULL);
        gone = made == NULL ? -1 : 0;
        Py_XDECREF(made);
    }
    Py_XDECREF(waiting);
    if (gone == 0)
        gone = is_true(state, n_removed);
    return gone > 0 ? tell_removed(ctx, state, reason) : gone;
}

static PyObject *handed_out(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    Holder who = {NULL, NULL, 0};
    PyObject *hooks = PyTuple_GetItem(ctx, HOOKS);
    PyObject *state = NULL, *group = NULL, *ids = NULL, *emit = NULL, *result = NULL;
    if (count != 2 || !PyList_CheckExact(args[0]))
        return otherwise(ctx, args, count);
    state = state_of(ctx, args[1]);
    int common = state == NULL ? 0 : find_holder(ctx, &who);
    if (common > 0)
        group = looked_up(state, n_groups, who.number);
    if (group == NULL) {
        if (!PyErr_Occurred())
            result = otherwise(ctx, args, count);
        goto end;
    }
    if (tell_waiting(ctx, hooks, state, n_evict) < 0)
        goto end;
    Py_ssize_t size = PyList_Size(args[0]);
    ids = PyList_New(size);
    for (Py_ssize_t i = 0; ids != NULL && i < size; i++) {
        PyObject *id = PyObject_GetAttr(PyList_GetItem(args[0], i), n_block_id);
        if (id == NULL)
            goto end;
        PyList_SetItem(ids, i, id);
    }
    if (ids != NULL && (emit = emitter(hooks, n_alloc)) != NULL)
        result = PyObject_CallFunctionObjArgs(emit, ids, group, who.req, Py_None, NULL);
end:
    Py_XDECREF(emit);
    Py_XDECREF(ids);
    Py_XDECREF(group);
    Py_XDECREF(state);
    forget(&who);
    return ended(ctx, result);
}

/* --- blocks given back: (pool, blocks) ------------------------------------------------------ */

static PyObject *ids_of(PyObject *blocks, PyObject *pool)
{
    PyObject *ids = PyList_New(0);
    Py_ssize_t size = PyList_Size(blocks);
    for (Py_ssize_t i = 0; ids != NULL && i < size; i++) {
        PyObject *block = PyList_GetItem(blocks, i), *of = NULL, *id = NULL;
        int null = is_true(block, n_is_null), failed = null < 0;
        if (null == 0) {
            of = PyObject_GetAttr(block, n_pool);
            if (of == NULL)
                PyErr_Clear();
            if (of == NULL || of == pool) {
                id = PyObject_GetAttr(block, n_block_id);
                failed = id == NULL || PyList_Append(ids, id) < 0;
            }
        }
        Py_XDECREF(id);
        Py_XDECREF(of);
        if (failed)
            Py_CLEAR(ids);
    }
    return ids;
}

static int has(PyObject *owner, PyObject *name, PyObject *value)
{
    PyObject *all = PyObject_GetAttr(owner, name);
    int found = all == NULL ? -1 : PySequence_Contains(all, value);
    Py_XDECREF(all);
    return found;
}

static int tell_slide(PyObject *hooks, PyObject *group, PyObject *req, PyObject *ids)
{
    PyObject *order = PyList_GetSlice(ids, 0, PyList_Size(ids)), *emit = NULL, *made = NULL;
    if (order != NULL && PyList_Reverse(order) == 0 && (emit = emitter(hooks, n_slide)) != NULL)
        made = PyObject_CallFunctionObjArgs(emit, group, req, order, NULL);
    int told = made == NULL ? -1 : 0;
    Py_XDECREF(made);
    Py_XDECREF(emit);
    Py_XDECREF(order);
    return told;
}

static PyObject *given_back(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    Holder who = {NULL, NULL, 0};
    PyObject *hooks = PyTuple_GetItem(ctx, HOOKS);
    PyObject *state = NULL, *group = NULL, *ids = NULL, *emit = NULL, *front = NULL;
    PyObject *result = NULL;
    if (count != 2 || !PyList_CheckExact(args[1]))
        return otherwise(ctx, args, count);
    state = state_of(ctx, args[0]);
    int common = state == NULL ? 0 : find_holder(ctx, &who);
    if (common > 0)
        group = looked_up(state, n_groups, who.number);
    if (group == NULL) {
        if (!PyErr_Occurred())
            result = otherwise(ctx, args, count);
        goto end;
    }
    int gone = is_true(state, n_removed);
    if (gone < 0 || (gone && tell_removed(ctx, state, n_invalidate) < 0))
        goto end;
    if ((ids = ids_of(args[1], args[0])) == NULL)
        goto end;
    if (PyList_Size(ids) == 0) {
        Py_INCREF(Py_None);
        result = Py_None;
        goto end;
    }
    if (who.slides) {
        int window = has(state, n_sliding, who.number);
        if (window < 0 || (window && tell_slide(hooks, group, who.req, ids) < 0))
            goto end;
    }
    front = PyObject_GetAttr(hooks, n_front);
    if (front != NULL && (emit = emitter(hooks, n_free)) != NULL) {
        int some = PyObject_IsTrue(front);
        if (some >= 0)
            result = PyObject_CallFunctionObjArgs(
                emit, ids, group, who.req, Py_None, Py_None, some ? front : Py_None, NULL);
    }
end:
    Py_XDECREF(front);
    Py_XDECREF(emit);
    Py_XDECREF(ids);
    Py_XDECREF(group);
    Py_XDECREF(state);
    forget(&who);
    return ended(ctx, result);
}

/* --- hashes of whole blocks: ((state, blocks, hashes before), pool, request, …, size) --------- */

/* (pool, request, blocks, cached, full, size): what `filled` compares with, which comes first. */
static PyObject *filling(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    PyObject *part = NULL, *before = NULL, *result = NULL;
    if (count != 6 || !PyList_CheckExact(args[2]))
        return otherwise(ctx, args, count);
    PyObject *state = state_of(ctx, args[0]);
    int compared = state == NULL ? -1 : is_true(state, n_comparing);
    if (compared != 0) {
        if (!PyErr_Occurred())
            result = otherwise(ctx, args, count);
        goto end;
    }
    Py_ssize_t from = PyLong_AsSsize_t(args[3]), to = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred() || from < 0 || to < from) {
        if (!PyErr_Occurred())
            result = otherwise(ctx, args, count);
        goto end;
    }
    if ((part = PyList_GetSlice(args[2], from, to)) == NULL
        || (before = PyList_New(PyList_Size(part))) == NULL)
        goto end;
    for (Py_ssize_t i = 0; i < PyList_Size(part); i++) {
        PyObject *hash = PyObject_GetAttr(PyList_GetItem(part, i), n_block_hash);
        if (hash == NULL)
            goto end;
        PyList_SetItem(before, i, hash);
    }
    if (PyObject_SetAttr(state, n_comparing, Py_True) == 0)
        result = PyTuple_Pack(3, state, part, before);
end:
    Py_XDECREF(before);
    Py_XDECREF(part);
    Py_XDECREF(state);
    return ended(ctx, result);
}

/* (pool, key, block, tokens): nothing where the blocks of a whole call are compared. */
static PyObject *inserting(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    PyObject *state = count == 4 ? state_of(ctx, args[0]) : NULL;
    int compared = state == NULL ? 0 : is_true(state, n_comparing);
    Py_XDECREF(state);
    if (PyErr_Occurred())
        return ended(ctx, NULL);
    if (compared <= 0)
        return otherwise(ctx, args, count);
    Py_RETURN_NONE;
}

static int tell_run(PyObject *emit, PyObject *group, PyObject *blocks, PyObject *hashes,
                    long long end, long long unit, PyObject *req)
{
    PyObject *tokens = Py_BuildValue("[LL]", end - unit * PyList_Size(blocks), end);
    PyObject *made = tokens == NULL ? NULL : PyObject_CallFunctionObjArgs(
        emit, group, blocks, hashes, tokens, req, NULL);
    Py_XDECREF(tokens);
    Py_XDECREF(made);
    return made == NULL ? -1 : 0;
}

/* 1 where all new hashes are bytes of one group, whose number is then at `tail`. */
static int one_group(PyObject *part, PyObject *before, unsigned char *tail)
{
    int found = 0;
    Py_ssize_t size = PyList_Size(part);
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *now = PyObject_GetAttr(PyList_GetItem(part, i), n_block_hash);
        int fits = 1;
        if (now == NULL)
            return -1;
        if (now != PyList_GetItem(before, i)) {
            fits = PyBytes_Check(now) && PyBytes_Size(now) >= TAIL + GROUP_BYTES;
            if (fits) {
                char *end = PyBytes_AsString(now) + PyBytes_Size(now) - GROUP_BYTES;
                if (!found)
                    memcpy(tail, end, GROUP_BYTES);
                fits = memcmp(tail, end, GROUP_BYTES) == 0;
                found = 1;
            }
        }
        Py_DECREF(now);
        if (!fits)
            return 0;
    }
    return found;
}

static PyObject *filled(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    PyObject *hooks = PyTuple_GetItem(ctx, HOOKS), *result = NULL;
    PyObject *number = NULL, *group = NULL, *unit = NULL, *emit = NULL, *req = NULL;
    PyObject *keyed = NULL, *blocks = NULL, *hashes = NULL;
    unsigned char tail[GROUP_BYTES];
    if (count != 7 || !PyTuple_CheckExact(args[0]) || PyTuple_Size(args[0]) != 3)
        return otherwise(ctx, args, count);
    PyObject *state = PyTuple_GetItem(args[0], 0), *part = PyTuple_GetItem(args[0], 1);
    PyObject *before = PyTuple_GetItem(args[0], 2);
    int waits = is_true(state, n_removed);
    if (waits < 0)
        return ended(ctx, NULL);
    int common = !waits && PyList_CheckExact(part) && PyList_CheckExact(before)
                 && PyList_Size(part) == PyList_Size(before);
    if (common)
        common = one_group(part, before, tail);
    if (common > 0) {
        number = PyLong_FromLong((long)tail[0] << 24 | tail[1] << 16 | tail[2] << 8 | tail[3]);
        group = number == NULL ? NULL : looked_up(state, n_groups, number);
        unit = group == NULL ? NULL : looked_up(state, n_units, number);
        common = unit != NULL && PyObject_RichCompareBool(unit, args[6], Py_EQ) > 0;
    }
    if (common <= 0) {
        if (!PyErr_Occurred())
            result = otherwise(ctx, args, count);
        goto end;
    }
    long long size = PyLong_AsLongLong(unit), at = PyLong_AsLongLong(args[4]) * size;
    if (PyErr_Occurred() || PyObject_SetAttr(state, n_comparing, Py_False) < 0
        || (emit = emitter(hooks, n_publish)) == NULL
        || (req = PyObject_GetAttr(args[2], n_request_id)) == NULL
        || (keyed = PyObject_GetAttr(hooks, n_keyed)) == NULL)
        goto end;
    for (Py_ssize_t i = 0; i <= PyList_Size(part); i++, at += size) {
        PyObject *block = i < PyList_Size(part) ? PyList_GetItem(part, i) : NULL;
        PyObject *now = block == NULL ? NULL : PyObject_GetAttr(block, n_block_hash);
        int null = now == NULL || now == PyList_GetItem(before, i) ? 1 : is_true(block, n_is_null);
        int failed = null < 0 || (block != NULL && now == NULL);
        if (!failed && null && blocks != NULL) {
            failed = tell_run(emit, group, blocks, hashes, at, size, req) < 0;
            Py_CLEAR(blocks);
            Py_CLEAR(hashes);
        }
        if (!failed && !null) {
            PyObject *id = PyObject_GetAttr(block, n_block_id);
            PyObject *name = name_of(
                ctx, keyed, PyBytes_AsString(now) + PyBytes_Size(now) - GROUP_BYTES - TAIL);
            if (blocks == NULL) {
                blocks = PyList_New(0);
                hashes = PyList_New(0);
            }
            failed = !id || !name || !blocks || !hashes || PyList_Append(blocks, id) < 0
                     || PyList_Append(hashes, name) < 0;
            Py_XDECREF(name);
            Py_XDECREF(id);
        }
        Py_XDECREF(now);
        if (failed)
            goto end;
    }
    Py_INCREF(Py_None);
    result = Py_None;
end:
    Py_XDECREF(hashes);
    Py_XDECREF(blocks);
    Py_XDECREF(keyed);
    Py_XDECREF(req);
    Py_XDECREF(emit);
    Py_XDECREF(unit);
    Py_XDECREF(group);
    Py_XDECREF(number);
    return ended(ctx, result);
}

/* --- hashes that are gone: (hashes, pool, block) ------------------------------------------------ */

static PyObject *gone(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    PyObject *list = NULL, *id = NULL, *result = NULL;
    PyObject *state = count == 3 && PyList_CheckExact(args[0]) ? state_of(ctx, args[1]) : NULL;
    if (state == NULL) {
        if (!PyErr_Occurred())
            result = otherwise(ctx, args, count);
        return ended(ctx, result);
    }
    if ((list = PyObject_GetAttr(state, n_removed)) == NULL
        || (id = PyObject_GetAttr(args[2], n_block_id)) == NULL)
        goto end;
    for (Py_ssize_t i = 0; i < PyList_Size(args[0]); i++) {
        PyObject *key = PyObject_Bytes(PyList_GetItem(args[0], i));
        PyObject *pair = key == NULL ? NULL : PyTuple_Pack(2, id, key);
        int failed = pair == NULL || PyList_Append(list, pair) < 0;
        Py_XDECREF(pair);
        Py_XDECREF(key);
        if (failed)
            goto end;
    }
    Py_INCREF(Py_None);
    result = Py_None;
end:
    Py_XDECREF(id);
    Py_XDECREF(list);
    Py_DECREF(state);
    return ended(ctx, result);
}

/* --- blocks that go to the head of the free list: (blocks,) --------------------------------------- */

static PyObject *ahead(PyObject *ctx, PyObject *const *args, Py_ssize_t count)
{
    if (count != 1 || !PyList_CheckExact(args[0]))
        return otherwise(ctx, args, count);
    Py_ssize_t size = PyList_Size(args[0]);
    if (size == 0)
        Py_RETURN_NONE;
    PyObject *ids = PyList_New(size), *result = NULL;
    for (Py_ssize_t i = 0; ids != NULL && i < size; i++) {
        PyObject *id = PyObject_GetAttr(PyList_GetItem(args[0], i), n_block_id);
        if (id == NULL)
            goto end;
        PyList_SetItem(ids, i, id);
    }
    if (ids != NULL && PyObject_SetAttr(PyTuple_GetItem(ctx, HOOKS), n_front, ids) == 0) {
        Py_INCREF(Py_None);
        result = Py_None;
    }
end:
    Py_XDECREF(ids);
    return ended(ctx, result);
}

/* --- the functions, each with what it knows --------------------------------------------------- */

#define FUNCTION(name) \
    {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, "The common case in C."}

static PyMethodDef tellers[] = {
    FUNCTION(handed_out), FUNCTION(given_back), FUNCTION(filling),    FUNCTION(filled),
    FUNCTION(inserting),  FUNCTION(gone),       FUNCTION(ahead),      {NULL, NULL, 0, NULL},
};

static PyObject *make_teller(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *hook, *hooks, *slow, *kinds, *getframe, *known;
    (void)module;
    if (!PyArg_ParseTuple(args, "sUOOO!OO!", &name, &hook, &hooks, &slow, &PyDict_Type, &kinds,
                          &getframe, &PyDict_Type, &known))
        return NULL;
    for (PyMethodDef *def = tellers; def->ml_name != NULL; def++) {
        if (strcmp(def->ml_name, name) != 0)
            continue;
        PyObject *ctx = Py_BuildValue("(OOOOiOO)", hooks, slow, kinds, getframe, 1, known, hook);
        PyObject *made = ctx == NULL ? NULL : PyCFunction_NewEx(def, ctx, NULL);
        Py_XDECREF(ctx);
        return made;
    }
    return PyErr_Format(PyExc_ValueError, "no hook is called %s", name);
}

static PyMethodDef functions[] = {
    {"make_teller", make_teller, METH_VARARGS, "What tells the common case of a hook."},
    {NULL, NULL, 0, NULL},
};

int add_hooks(PyObject *module)
{
#define INTERN(name)                                                                              \
    if ((n_##name = PyUnicode_InternFromString(#name)) == NULL)                                   \
        return -1;
    NAMES(INTERN)
    return PyModule_AddFunctions(module, functions);
}
