"""Word lists and syllables from which synthetic documents are made.

`WORDS[symbol]` holds the alternatives of one slot. It may hold slots itself: `{symbol}` stands for
one of that symbol's alternatives, `{2-40}` for a whole number of that range. Names of people and places are
not listed: `SYLLABLES` holds what they are put together from, so nearly every document has names of its own.
"""

from __future__ import annotations

__all__ = ["SYLLABLES", "WORDS"]


def _words(text: str) -> tuple[str, ...]:
    """Alternatives separated by commas, on any number of lines."""
    return tuple(" ".join(part.split()) for part in text.split(","))


SYLLABLES: dict[str, tuple[str, ...]] = {
    "start": _words(
        """al, an, ar, bel, ber, bra, bri, cal, car, cor, da, del, dor, ed, el, er, fa, fen, gal, gor, hal,
        har, il, is, jor, ka, kel, kor, la, lin, lo, ma, mer, mi, na, nel, o, or, pa, per, qui, ra, ren,
        ro, sa, sel, so, ta, tel, tor, ul, va, ver, vi, wen, wil, ya, yor, za, zel"""
    ),
    "middle": _words("""a, e, i, o, u, an, en, il, or, ar, ista, eli, ova, ande, uri, ima, ero, alo, ine, esha, oru"""),
    "given": _words(
        """bert, bin, da, dan, dra, fa, gan, la, lan, las, len, lia, lin, lo, mar, mi, na, nard, ne, nia,
        nor, ra, ric, rin, ro, sa, sha, sin, ta, than, ton, va, vin, wyn, ya, zo"""
    ),
    "family": _words(
        """back, barrow, bold, brand, bridge, crest, den, dale, fell, field, gate, gren, hart, holm, kin,
        land, lock, man, mark, mond, more, nell, quist, ridge, rick, sen, shaw, stad, stone, stow, ter,
        thorpe, vale, ward, well, wick, wood, worth, yard, zan"""
    ),
    "town": _words(
        """bay, borough, bourne, bridge, brook, burn, bury, cliff, combe, cross, dale, ferry, field, ford,
        gate, ham, haven, head, hurst, ley, march, mead, mere, minster, moor, mouth, pool, port, stead,
        stoke, ton, wall, well, wick, worth"""
    ),
}

WORDS: dict[str, tuple[str, ...]] = {
    "person": ("{first} {surname}",),
    "date": ("{1-28} {month}", "{month} {1-28}", "{weekday} {1-28} {month}"),
    "month": _words(
        """January, February, March, April, May, June, July, August, September, October, November, December"""
    ),
    "weekday": _words("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "year": ("{1702-1988}",),
    "clock": ("{1-12}:{10-59}", "half past {few}", "quarter to {few}", "{few} o'clock", "{13-23}:{10-59}"),
    "few": _words("two, three, four, five, six, seven, eight, nine, ten, eleven"),
    "many": _words("a dozen, {12-98}, {104-960}, nearly {few} hundred, over {few} dozen, {21-79}"),
    "price": (
        "{2-98}.{10-95} crowns",
        "{3-99} crowns",
        "{2-19} shillings",
        "{104-985} crowns",
        "{12-96} marks",
    ),
    "street": (
        "{surname} Street",
        "{place} Road",
        "{tree} Lane",
        "{surname} Square",
        "{trade} Row",
        "{colour} {animal} Yard",
        "Upper {tree} Walk",
    ),
    "firm": (
        "{surname} and {surname}",
        "{surname} {goods_firm}",
        "the {place} {goods_firm}",
        "{surname} Brothers",
        "the {colour} {animal} Company",
        "{surname}, {surname} and Daughters",
    ),
    "goods_firm": _words(
        """Foundry, Bakery, Mills, Dairy, Printworks, Shipyard, Quarry, Brewery, Glassworks, Nurseries,
        Bindery, Instruments, Carriage Works, Ropeworks, Tannery, Optical Works, Weavers, Clockworks"""
    ),
    "tree": _words(
        """alder, ash, aspen, beech, birch, cedar, cherry, chestnut, elder, elm, hawthorn, hazel, holly,
        hornbeam, juniper, larch, lime, maple, oak, pine, poplar, rowan, spruce, sycamore, walnut,
        willow, yew"""
    ),
    "animal": _words(
        """badger, bear, bittern, boar, crane, crow, deer, dormouse, eagle, eel, falcon, finch, fox, goat,
        goose, hare, hedgehog, heron, horse, kestrel, lark, lynx, marten, mole, newt, otter, owl, ox,
        pike, plover, ram, raven, salmon, seal, stoat, stork, swan, swift, trout, vole, weasel, wolf,
        wren"""
    ),
    "colour": _words(
        """amber, black, blue, bronze, brown, cream, crimson, dun, emerald, golden, green, grey, indigo,
        ivory, lilac, olive, orange, pale, pink, purple, red, rust, sandy, scarlet, silver, slate,
        tawny, violet, white, yellow"""
    ),
    "trade": _words(
        """baker, barber, beekeeper, bookbinder, brewer, butcher, carpenter, carter, chandler, clerk,
        clockmaker, cobbler, cooper, draper, dyer, engraver, farrier, ferryman, fishmonger, gardener,
        glazier, grocer, harbour pilot, joiner, locksmith, mason, miller, nurse, organist, painter,
        plumber, potter, printer, roofer, saddler, schoolteacher, shepherd, surveyor, tailor, tanner,
        thatcher, tinsmith, weaver, wheelwright"""
    ),
    "science": _words(
        """acoustics, astronomy, botany, cartography, chemistry, crystallography, geology, geometry,
        glaciology, hydrology, linguistics, mechanics, metallurgy, meteorology, mineralogy, optics,
        ornithology, phonetics, soil science, statistics, surveying, zoology"""
    ),
    "building": _words(
        """almshouse, assembly rooms, bandstand, barn, bathhouse, boathouse, bus depot, chapel, clock
        tower, corn exchange, custom house, ferry landing, fire station, footbridge, gatehouse, granary,
        grammar school, harbour office, ice house, library, lighthouse, lock cottage, mill, museum,
        observatory, post office, pumping station, reading room, schoolhouse, signal box, swimming
        baths, theatre, town hall, viaduct, water tower, weigh house"""
    ),
    "object": _words(
        """accordion, anvil, barometer, bicycle, birdcage, brass kettle, bread tin, candlestick, carpet,
        cello, chess set, compass, copper pan, drum, fiddle, fishing rod, folding chair, fur hat, globe,
        hand saw, harness, iron bedstead, ladder, lantern, leather case, linen chest, loom, mirror, oil
        stove, parasol, pocket watch, quilt, rocking horse, rowing boat, sewing machine, silver
        spoon, spade, spinning wheel, stepladder, sundial, telescope, toolbox, trumpet, typewriter,
        umbrella, wagon wheel, walking stick, wheelbarrow, writing desk"""
    ),
    "material": _words(
        """alder wood, beaten copper, beeswax, boiled leather, brass, brick, canvas, cast iron, clay, cork,
        cut glass, felt, flint, granite, horn, lead, limestone, linen, oak, parchment, pewter, pine,
        plaster, sandstone, silk, slate, soapstone, steel, straw, tin, velvet, walnut, wicker, wool,
        zinc"""
    ),
    "quality": _words(
        """battered, bent, chipped, clean, cracked, damp, dented, dusty, faded, fine, frayed, heavy, light,
        loose, mended, mismatched, narrow, new, painted, patched, plain, polished, rusted, scratched,
        sound, spare, stained, sturdy, tarnished, unmarked, varnished, warped, well kept, worn"""
    ),
    "crop": _words(
        """apples, barley, beans, beetroot, blackcurrants, buckwheat, cabbages, carrots, chard, cherries,
        cucumbers, flax, garlic, gooseberries, hay, hops, kale, leeks, lentils, maize, marrows, mustard,
        oats, onions, parsnips, pears, peas, plums, potatoes, pumpkins, quinces, radishes, rhubarb, rye,
        spinach, strawberries, swedes, turnips, wheat"""
    ),
    "dish": _words(
        """broth, cake, casserole, chowder, chutney, crumble, dumplings, flatbread, fritters, gratin,
        hotpot, jam, loaf, omelette, pancakes, pasties, pickle, pie, porridge, pudding, ragout, relish,
        salad, sauce, scones, soup, stew, stuffing, tart, terrine"""
    ),
    "seasoning": _words(
        """aniseed, bay leaves, black pepper, caraway, cardamom, chervil, chives, cinnamon, cloves,
        coriander seed, cumin, dill, fennel, ginger, honey, horseradish, juniper berries, lemon peel,
        lovage, mace, marjoram, mint, mustard seed, nutmeg, paprika, parsley, rosemary, saffron, sage,
        sea salt, sorrel, tarragon, thyme, vinegar"""
    ),
    "pantry": _words(
        """breadcrumbs, brown sugar, butter, buttermilk, chestnuts, cider, cream, dried figs, eggs, flour,
        goat cheese, ground almonds, hard cheese, hazelnuts, lard, milk, molasses, oatmeal, oil, prunes,
        raisins, rice, semolina, smoked bacon, sour cream, stock, suet, treacle, walnuts, yeast"""
    ),
    "vessel": _words(
        """baking tin, bowl, cast iron pot, casserole, colander, copper pan, crock, frying pan, jar, jug,
        kettle, mortar, pie dish, roasting tray, saucepan, skillet, stockpot"""
    ),
    "instrument": _words(
        """anemometer, barometer, clinometer, current meter, field glasses, hygrometer, level, measuring
        chain, microscope, pH strips, plumb line, rain gauge, sextant, sieve, sounding line, spring
        balance, stopwatch, tape, theodolite, thermometer"""
    ),
    "terrain": _words(
        """bog, chalk slope, cliff top, cutting, dry valley, dune, estuary, flood meadow, forest edge,
        gorge, gravel pit, gully, headland, heath, hillside, hollow, lake shore, ledge, marsh, meadow,
        moor, mudflat, orchard, pasture, plateau, pond, quarry floor, ravine, reed bed, ridge,
        saltmarsh, scree, shingle bank, spring, terrace, thicket"""
    ),
    "weather": _words(
        """a hard frost, a light breeze from the {wind}, bright sunshine, broken cloud, drizzle, driving
        sleet, dry cold, fog until {clock}, gusts from the {wind}, hail, haze, heavy rain, light snow,
        low cloud, passing showers, a steady {wind} wind, still air, thick mist, thunder to the {wind},
        warm rain"""
    ),
    "wind": _words("north, south, east, west, north-east, north-west, south-east, south-west"),
    "plant": _words(
        """bilberry, bog cotton, bracken, bramble, burdock, campion, clover, coltsfoot, comfrey, cowslip,
        fern, foxglove, gorse, harebell, heather, hogweed, horsetail, ivy, knapweed, meadowsweet, moss,
        mullein, nettle, orchid, primrose, ragwort, reed, rush, sedge, sorrel, sundew, tansy, teasel,
        thistle, vetch, yarrow"""
    ),
    "rock": _words(
        """basalt, chalk, clay, conglomerate, dolomite, flint, gneiss, granite, gravel, gritstone,
        limestone, loam, marl, mudstone, peat, quartzite, sand, sandstone, schist, shale, silt, slate,
        tuff"""
    ),
    "subject": _words(
        """bell ringing, the boundary stones, bridge tolls, the bus timetable, the cemetery wall, coal
        deliveries, the drainage of {place} Road, dog licences, the evening classes, the fire bell,
        flood defences, the flower show, gas lamps, the harvest supper, hedge cutting, the library roof,
        market stalls, night watchmen, the parish map, the playground, the public pump, road salt, the
        school stove, seats by the river, the stray {animal}, street sweeping, the swimming lessons, the
        town band, the tree planting, the village clock, winter fuel"""
    ),
    "decision": _words(
        """adopted, approved with one change, carried by {3-9} votes to {0-2}, deferred until {month}, put
        to a public meeting, referred back to {surname}, rejected, sent to the auditor, settled without
        a vote, withdrawn"""
    ),
    "event": _words(
        """a brass concert, a chess tournament, a lantern parade, a lecture on {science}, a plant sale, a
        pottery fair, a puppet play, a raft race, a regatta, a ring of {few} bells, a sheep sale, a
        spelling contest, a swimming gala, a tea dance, a walking race to {place}, an auction of {crop},
        an exhibition of {material}, an open day, the harvest market, the midsummer fair, the opening of
        the {building}, the winter ball"""
    ),
    "mood": _words(
        """anxious, cheerful, content, curious, doubtful, grateful, hopeful, impatient, lonely, merry,
        proud, puzzled, relieved, restless, sleepy, sorry, surprised, tired, uneasy, weary"""
    ),
    "relation": _words(
        """aunt, brother, cousin, daughter, father, godmother, grandmother, landlady, lodger, mother,
        neighbour, nephew, niece, old teacher, sister, son, uncle"""
    ),
    "ship_type": _words(
        """barge, brig, collier, cutter, dredger, ferry, ketch, lugger, pilot boat, schooner, tug, trawler"""
    ),
    "cargo": _words(
        """bales of wool, barrels of tar, boxes of {crop}, bricks, casks of cider, coal, coils of rope,
        crates of glass, dried fish, hides, iron bars, lamp oil, limestone, paper, roofing slate, sacks
        of {crop}, salt, seed potatoes, timber, tin plate"""
    ),
    "fault": _words(
        """a blocked feed pipe, a broken spring, a cracked casting, a frayed belt, a leaking seal, a loose
        coupling, a missing pin, a seized bearing, a slipped chain, a split washer, a worn gear, bent
        teeth, dirt in the valve, lack of oil, rust under the plate, water in the sump"""
    ),
    "machine": _words(
        """bottling line, cider press, crane, dough mixer, fire pump, grain elevator, hay baler, lathe,
        lift, loom, organ blower, paper cutter, plough, printing press, sluice gate, station clock,
        steam boiler, threshing machine, tram motor, turret clock, water wheel, weighbridge, winch,
        windmill cap"""
    ),
    "sport": _words(
        """archery, bowls, curling, fencing, handball, hockey, quoits, rowing, skating, swimming, tug of
        war"""
    ),
    "work": _words(
        """a catalogue of {animal} songs, a dictionary of {trade} terms, a history of {place}, a map of the
        {place} marshes, a method for casting {material}, a mural in the {building}, a treatise on
        {science}, an opera about a {trade}, an album of {plant} drawings, a guide to {terrain} plants,
        {few} string quartets, {12-60} short stories"""
    ),
}
