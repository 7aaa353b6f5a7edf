"""The Lua scripts, each of which Redis runs as one step that nobody sees the middle of.

Of each store there are: ``pairs``, a hash of the newest version; ``undo:N`` for each version N, a hash of the values
that it replaced; ``versions``, a hash of what is held; and ``staged:…``, the changes of an attempt that is about to
commit. Values begin with one byte: 1 before a value, 0 alone for none. In ``versions`` there are ``newest`` and
``oldest``, and for each version its identity, its number of keys and the size of its undo hash, by which a loss is
noticed.

The first element of every answer says how it went.
"""

from __future__ import annotations

_COMMON = """
local versions, newest_pairs, undo_prefix = KEYS[1], KEYS[2], KEYS[3]
local SLICE = 1000

local function text(number) return string.format('%.0f', number) end
local function undo_of(version) return undo_prefix .. text(version) end

local newest = tonumber(redis.call('HGET', versions, 'newest') or '0')
local oldest = tonumber(redis.call('HGET', versions, 'oldest') or '0')

local function held(version)
    local record = redis.call('HGET', versions, text(version))
    if not record then return nil end
    local identity, num_keys, undo_size = string.match(record, '^(%S+) (%d+) (%d+)$')
    return identity, tonumber(num_keys), tonumber(undo_size)
end

local function each_slice(hash, visit)
    local cursor = '0'
    repeat
        local found = redis.call('HSCAN', hash, cursor, 'COUNT', SLICE)
        cursor = found[1]
        for first = 1, #found[2], 2 * SLICE do
            local keys, values = {}, {}
            for i = first, math.min(first + 2 * SLICE - 1, #found[2]), 2 do
                keys[#keys + 1], values[#values + 1] = found[2][i], found[2][i + 1]
            end
            visit(keys, values)
        end
    until cursor == '0'
end

local function values_at(version, keys)
    local found, open = {}, {}
    for i = 1, #keys do found[i] = false; open[i] = i end
    for later = version + 1, newest + 1 do
        local hash = later > newest and newest_pairs or undo_of(later)
        local still_open = {}
        for first = 1, #open, SLICE do
            local asked = {}
            for i = first, math.min(first + SLICE - 1, #open) do asked[#asked + 1] = keys[open[i]] end
            local values = redis.call('HMGET', hash, unpack(asked))
            for i = 1, #asked do
                local position = open[first + i - 1]
                if not values[i] then
                    still_open[#still_open + 1] = position
                elseif string.byte(values[i]) == 1 then
                    found[position] = values[i]
                end
            end
        end
        open = still_open
    end
    return found
end
"""

# version -> ok, identity, number of keys | missing, oldest, newest | damaged, what
OPEN = (
    _COMMON
    + """
local version = tonumber(ARGV[1])
local identity, num_keys = held(version)
if not identity then return {'missing', text(oldest), text(newest)} end
local _, newest_num_keys = held(newest)
if redis.call('HLEN', newest_pairs) ~= newest_num_keys then return {'damaged', newest_pairs} end
for later = version + 1, newest do
    local _, _, undo_size = held(later)
    if redis.call('HLEN', undo_of(later)) ~= undo_size then return {'damaged', undo_of(later)} end
end
return {'ok', identity, num_keys}
"""
)

# version, identity, keys... -> ok, values... | replaced
GET = (
    _COMMON
    + """
local version = tonumber(ARGV[1])
if held(version) ~= ARGV[2] then return {'replaced'} end
local keys = {}
for i = 3, #ARGV do keys[#keys + 1] = ARGV[i] end
return {'ok', values_at(version, keys)}
"""
)

# version, identity, version whose undo hash to scan (0: the pairs), cursor
# -> ok, newest, cursor, keys, values | replaced
SCAN = (
    _COMMON
    + """
local version, source = tonumber(ARGV[1]), tonumber(ARGV[3])
if held(version) ~= ARGV[2] then return {'replaced'} end
local found = redis.call('HSCAN', source == 0 and newest_pairs or undo_of(source), ARGV[4], 'COUNT', SLICE)
local keys = {}
for i = 1, #found[2], 2 do keys[#keys + 1] = found[2][i] end
return {'ok', newest, found[1], keys, values_at(version, keys)}
"""
)

# base, its identity, identity of the version to be replaced, new identity, number of staged changes
# -> ok, number of keys | replaced | beaten, identity | unstaged
PUBLISH = (
    _COMMON
    + """
local staged = KEYS[4]
local base, new = tonumber(ARGV[1]), tonumber(ARGV[1]) + 1
local there, num_keys = held(new)
if there == ARGV[4] then return {'ok', num_keys} end
if base > 0 and held(base) ~= ARGV[2] then return {'replaced'} end
if (there or '') ~= ARGV[3] then return {'beaten', there or ''} end
if redis.call('HLEN', staged) ~= tonumber(ARGV[5]) then return {'unstaged'} end

if base == 0 then
    for version = oldest, newest do redis.call('UNLINK', undo_of(version)) end
    redis.call('UNLINK', newest_pairs, versions)
    redis.call('HSET', versions, 'oldest', text(new))
else
    for version = newest, new, -1 do
        each_slice(undo_of(version), function(keys, values)
            for i = 1, #keys do
                if string.byte(values[i]) == 1 then
                    redis.call('HSET', newest_pairs, keys[i], values[i])
                else
                    redis.call('HDEL', newest_pairs, keys[i])
                end
            end
        end)
        redis.call('UNLINK', undo_of(version))
        redis.call('HDEL', versions, text(version))
    end
end

local undo = undo_of(new)
each_slice(staged, function(keys, values)
    local before = redis.call('HMGET', newest_pairs, unpack(keys))
    for i = 1, #keys do
        local present = string.byte(values[i]) == 1
        if base > 0 and (present or before[i]) then
            -- A scan may show a key twice; the value of the first time is that of the base.
            redis.call('HSETNX', undo, keys[i], before[i] or '\\0')
        end
        if present then
            redis.call('HSET', newest_pairs, keys[i], values[i])
        elseif before[i] then
            redis.call('HDEL', newest_pairs, keys[i])
        end
    end
end)
num_keys = redis.call('HLEN', newest_pairs)
local record = ARGV[4] .. ' ' .. text(num_keys) .. ' ' .. text(redis.call('HLEN', undo))
redis.call('HSET', versions, 'newest', text(new), text(new), record)
redis.call('UNLINK', staged)
return {'ok', num_keys}
"""
)

# number of versions to keep -> ok
FORGET = (
    _COMMON
    + """
local first = newest - tonumber(ARGV[1]) + 1
if first > oldest then
    for version = oldest, first do
        -- What undoes a version is needed as long as the one before it is held.
        redis.call('UNLINK', undo_of(version))
        if version < first then redis.call('HDEL', versions, text(version)) end
    end
    local identity, num_keys = held(first)
    redis.call('HSET', versions, 'oldest', text(first), text(first), identity .. ' ' .. text(num_keys) .. ' 0')
end
return {'ok'}
"""
)

# version, identity -> ok | taken, newest
START_AT = (
    _COMMON
    + """
local version = tonumber(ARGV[1])
if newest == 0 then
    redis.call('HSET', versions, 'newest', text(version), 'oldest', text(version), text(version), ARGV[2] .. ' 0 0')
    return {'ok'}
end
local identity, num_keys = held(version)
if identity and num_keys == 0 then return {'ok'} end
return {'taken', text(newest)}
"""
)
